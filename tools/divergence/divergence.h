// Where two probed runs part.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/probe/probed_run.h"

namespace lockstep {

// The parameter that a piece of optimizer state, "optimizer.<kind>.<parameter>", belongs to; any
// other place as it is.
std::string ParameterOf(const std::string& place);

// A place that both runs have recorded, and where they differ: in the bits of the whole tensor, or
// because ranks of one run hold different copies of the same elements. The tensors belong to the
// runs.
struct Difference {
  const ProbedWhole* a = nullptr;
  const ProbedWhole* b = nullptr;
  int64_t block = 0;  // of the model; -1: before the first, one more than the last: behind it
  bool is_in_block = false;  // neither before nor behind

  const ProbeKey& key() const { return a->key; }
};

struct Divergence {
  int64_t compared = 0;                 // places that both runs have
  int64_t only_a = 0, only_b = 0;       // places that one of them has
  std::vector<Difference> differences;  // in the order of computation
  std::optional<ProbeKey> last_agreed;  // before the first difference; none: nothing agreed before
};

// Compares all places that both runs have, in the order in which one rank alone computes: the state
// before; each micro-batch forward, then backward; gradients of shards, gradients of the batch,
// numbers, optimizer state, parameters. InvalidArgument for runs that are not to be compared:
// another workload, model or cut of the batch, no place in common, or a tensor that is not
// complete.
absl::StatusOr<Divergence> FindDivergence(const ProbedRun& a, const ProbedRun& b);

}  // namespace lockstep
