#pragma once

#include "absl/status/statusor.h"
#include "core/config/config.h"
#include "core/config/settings.h"

namespace lockstep {

// The table [fsdp]; fsdp.h says what its keys mean.
struct FsdpOptions {
  // Ranks that keep a unit together between its forward and its backward: all of mesh.dp for
  // reshard_after_forward = true, 1 for false.
  int neighbours = 1;
};

// Checks the table against the mesh and the cut.
absl::StatusOr<FsdpOptions> ReadFsdpOptions(const Config& config, const Settings& settings);

}  // namespace lockstep
