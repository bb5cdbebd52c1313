#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/kernels/kernels.h"
#include "core/nn/model.h"
#include "tools/generate/sampling.h"

namespace lockstep {

struct ContinuationOptions {
  int64_t context = 1;  // tokens that the model sees at most: the last ones
  int64_t tokens = 1;   // to add
  SamplingOptions sampling = {};
  uint64_t seed = 1;
  std::optional<int32_t> stop = {};  // ends the text before all are there
};

// Continues a text of at least one token. Each new one is drawn from the logits that the model
// gives for the last ones, by a random number of its own, which belongs to (seed, its place in the
// continuation); `emit` hears of it at once. Every token costs a forward pass of the tokens before
// it: keys and values are not kept. Throws StatusException (no memory).
void Continue(Model& model, Kernels& kernels, std::vector<int32_t> text,
              const ContinuationOptions& options, const std::function<void(int32_t)>& emit);

}  // namespace lockstep
