#include "core/comm/mesh.h"

#include <utility>

#include "absl/status/statusor.h"
#include "core/base/status.h"

namespace lockstep {

absl::StatusOr<Mesh> Mesh::Create(const MeshShape& shape, Communicator& world) {
  LS_RETURN_IF_ERROR(shape.Check(world.size()));
  Mesh mesh(shape, world);
  // One color for all ranks that agree on the other axes: that of the first of them.
  for (const MeshAxis axis : kMeshAxes) {
    const auto choice_of = [&](int rank) -> Communicator::Choice {
      MeshCoordinate first = shape.CoordinateOf(rank);
      const int key = std::exchange(first[axis], 0);
      return {shape.RankAt(first), key};
    };
    LS_ASSIGN_OR_RETURN(mesh.axes_[static_cast<size_t>(axis)],
                        world.SplitBy(choice_of, Name(axis)));
  }
  if (shape.replicas > 1) {
    const auto choice_of = [&](int rank) -> Communicator::Choice {
      MeshCoordinate first = shape.CoordinateOf(rank);
      first.replicas = first.dp = 0;
      return {shape.RankAt(first), rank};
    };
    LS_ASSIGN_OR_RETURN(mesh.data_, world.SplitBy(choice_of, "data"));
  }
  return mesh;
}

}  // namespace lockstep
