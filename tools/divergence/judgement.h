// What a difference looks like.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/probe/probed_run.h"
#include "tools/divergence/divergence.h"

namespace lockstep {

enum class DifferenceKind {
  kCopiesDiffer,  // between ranks of one run
  kOtherBatch,    // other samples
  kOtherPlace,    // the tensor of another micro-batch
  kStale,         // the tensor of the step before
  kOneShare,      // what one shard of the batch contributes, where the sum should be
  kZero,          // nothing at all
  kFactor,        // all elements times one constant
  kOtherOrder,    // the same elements at other indices
  kOtherMask,     // zeros at other indices, and no other difference where both are not 0
  kRounding,      // about as far apart as roundings of the type explain
  kOther,         // none of these
  kHashesOnly,    // not known without values
};

// One element of two tensors.
struct ElementDifference {
  std::vector<int64_t> index;  // in the whole tensor
  double a = 0, b = 0;
  int64_t ulps = 0;  // -1: one of them is NaN
};

struct Judgement {
  DifferenceKind kind = DifferenceKind::kOther;
  std::string text;  // a sentence for a person
  // Where both runs have values:
  std::optional<ElementDifference> first;  // that differs, in row-major order
  int64_t differing = 0;                   // elements
  int64_t most_ulps = 0;
  double relative = 0;  // norm of the difference to the norm of a's tensor
  // By dimension, the first and the last index at which any element differs.
  std::vector<std::pair<int64_t, int64_t>> extent;
};

// Judges a difference of the two runs. Errors are those of ReadProbedValues.
absl::StatusOr<Judgement> Judge(const ProbedRun& a, const ProbedRun& b,
                                const Difference& difference);

}  // namespace lockstep
