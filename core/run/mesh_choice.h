#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "core/comm/mesh_shape.h"

namespace lockstep {

// The meshes of at most `ranks` ranks that a run on `mesh` may go on with, best first: those with
// more ranks come first, and among these those that keep more of the axes which divide the model
// (pp, cp, tp, replicas, ep), as these say what fits into a rank's memory. Each of these axes has a
// divisor of its size in `mesh`; dp has any size.
std::vector<MeshShape> SmallerMeshes(const MeshShape& mesh, int ranks);

// The first of SmallerMeshes that `fits`; nullopt if none does.
std::optional<MeshShape> LargestMesh(const MeshShape& mesh, int ranks,
                                     const std::function<bool(const MeshShape&)>& fits);

}  // namespace lockstep
