#pragma once

#include "absl/status/statusor.h"
#include "core/train/config.h"
#include "core/train/settings.h"

namespace lockstep {

// How the gradients of a rank's micro-batches add up in a step.
enum class Accumulation {
  kWhole,   // in full, and then over the ranks
  kShards,  // over the ranks at once, and then shard by shard
};

// The table [fsdp]; fsdp.h says what its keys mean.
struct FsdpOptions {
  // Ranks that keep a unit together between its forward and its backward: all of mesh.dp for
  // reshard_after_forward = true, 1 for false.
  int neighbours = 1;
  Accumulation accumulation = Accumulation::kWhole;
};

// Checks the table against the mesh.
absl::StatusOr<FsdpOptions> ReadFsdpOptions(const Config& config, const Settings& settings);

}  // namespace lockstep
