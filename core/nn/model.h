#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/nn/module.h"

namespace lockstep {

// How tensor parallelism may split a parameter.
enum class SplitStyle { kReplicated, kColumn, kRow, kVocabulary };

// Layers whose name matches `pattern` (`*` matches any run of characters) are split by `style`.
struct SplitRule {
  std::string pattern;
  SplitStyle style;
};

// A model: an ordered list of blocks that ends in logits, and what a strategy may do with it. It
// knows no strategy (contract 1 of the design).
struct Model {
  std::vector<std::unique_ptr<Block>> blocks;

  // The plan for tensor parallelism; the first matching rule counts, none means replicated.
  std::vector<SplitRule> split_plan;

  std::vector<Parameter*> Parameters() const;
  std::vector<RunningStatistics*> Statistics() const;

  // Elements of all parameters, tied ones counted once.
  int64_t ParameterCount() const;

  // Of all blocks; see BlockCost.
  int64_t ForwardMacsPerSample() const;
};

}  // namespace lockstep
