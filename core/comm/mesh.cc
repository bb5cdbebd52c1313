#include "core/comm/mesh.h"

#include <utility>
#include <vector>

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
  // The groups along several axes.
  const auto split = [&](const std::vector<MeshAxis>& axes, const char* name) {
    const auto choice_of = [&](int rank) -> Communicator::Choice {
      MeshCoordinate first = shape.CoordinateOf(rank);
      for (const MeshAxis axis : axes) first[axis] = 0;
      return {shape.RankAt(first), rank};
    };
    return world.SplitBy(choice_of, name);
  };
  if (shape.replicas > 1) {
    LS_ASSIGN_OR_RETURN(mesh.data_, split({MeshAxis::kReplicas, MeshAxis::kDp}, "data"));
  }
  if (shape.cp > 1) {
    LS_ASSIGN_OR_RETURN(mesh.batch_,
                        split({MeshAxis::kReplicas, MeshAxis::kDp, MeshAxis::kCp}, "batch"));
  }
  if (shape.cp > 1 && shape.replicas > 1) {
    LS_ASSIGN_OR_RETURN(mesh.dp_cp_, split({MeshAxis::kDp, MeshAxis::kCp}, "dp_cp"));
  }
  if (shape.ep == 1) return mesh;
  // Groups are named by their first rank.
  const auto split_experts = [&](auto&& change, const char* name) {
    const auto choice_of = [&](int rank) -> Communicator::Choice {
      MeshCoordinate first = shape.CoordinateOf(rank);
      const int group = shape.ExpertGroupOf(first), place = shape.ExpertPlaceOf(first);
      const int shown = change(first, group, place);
      first.dp = shown / shape.cp;
      first.cp = shown % shape.cp;
      return {shape.RankAt(first), rank};
    };
    return world.SplitBy(choice_of, name);
  };
  LS_ASSIGN_OR_RETURN(
      mesh.ep_,
      split_experts([&](MeshCoordinate&, int group, int) { return group * shape.ep; }, "ep"));
  LS_ASSIGN_OR_RETURN(
      mesh.expert_dp_,
      split_experts([](MeshCoordinate&, int, int place) { return place; }, "expert_dp"));
  if (shape.replicas == 1) return mesh;
  const auto of_all_replicas = [](MeshCoordinate& first, int, int place) {
    first.replicas = 0;
    return place;
  };
  LS_ASSIGN_OR_RETURN(mesh.expert_batch_, split_experts(of_all_replicas, "expert_batch"));
  return mesh;
}

}  // namespace lockstep
