#include "core/comm/mesh.h"

#include "absl/status/statusor.h"
#include "core/base/status.h"

namespace lockstep {

absl::StatusOr<Mesh> Mesh::Create(const MeshShape& shape, Communicator& world) {
  LS_RETURN_IF_ERROR(shape.Check(world.size()));
  Mesh mesh(shape, world);
  const MeshCoordinate& own = mesh.coordinate_;
  for (const MeshAxis axis : kMeshAxes) {
    // One color for all ranks that agree on the other axes: that of the first of them.
    MeshCoordinate first = own;
    first[axis] = 0;
    LS_ASSIGN_OR_RETURN(mesh.axes_[static_cast<size_t>(axis)],
                        world.Split(shape.RankAt(first), own[axis], Name(axis)));
  }
  if (shape.replicas > 1) {
    MeshCoordinate first = own;
    first.replicas = first.dp = 0;
    LS_ASSIGN_OR_RETURN(mesh.data_, world.Split(shape.RankAt(first), world.rank(), "data"));
  }
  return mesh;
}

}  // namespace lockstep
