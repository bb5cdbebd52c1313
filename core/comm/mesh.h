#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/comm/mesh_shape.h"

namespace lockstep {

// One rank's place among all ranks, and its groups along each axis.
//
//   LS_ASSIGN_OR_RETURN(Mesh mesh, Mesh::Create({.dp = 2, .tp = 2}, handle.comm()));
//   mesh.axis(MeshAxis::kDp).AllReduce(...);   // with the ranks that differ from this one in dp
//   only
class Mesh {
 public:
  // Called by all ranks of `world` with the same shape, whose product must be its size. Splits it
  // once for each axis; the groups are called as the axes are, and a rank's rank in each is its
  // coordinate. The world's communicator outlives the mesh.
  static absl::StatusOr<Mesh> Create(const MeshShape& shape, Communicator& world);

  const MeshShape& shape() const { return shape_; }
  const MeshCoordinate& coordinate() const { return coordinate_; }

  Communicator& world() const { return *world_; }
  // This rank's group along an axis, of one member where the axis has size 1.
  Communicator& axis(MeshAxis axis) const { return *axes_[static_cast<size_t>(axis)]; }
  Communicator& pp() const { return axis(MeshAxis::kPp); }
  Communicator& replicas() const { return axis(MeshAxis::kReplicas); }
  Communicator& dp() const { return axis(MeshAxis::kDp); }
  Communicator& cp() const { return axis(MeshAxis::kCp); }
  Communicator& tp() const { return axis(MeshAxis::kTp); }

  // All ranks that the samples of a batch are divided among, those of the first replica first:
  // "data", or the dp group where there is one replica.
  Communicator& data() const { return data_ != nullptr ? *data_ : dp(); }
  // All ranks that the tokens of a batch are divided among, those of the first ranks of data()
  // first: "batch", or data() where each has whole sequences.
  Communicator& batch() const { return batch_ != nullptr ? *batch_ : data(); }
  // The ranks of one replica that its tokens are divided among, along dp and cp: "dp_cp", or one
  // of the groups above.
  Communicator& dp_cp() const {
    if (shape_.replicas == 1) return batch();
    return dp_cp_ != nullptr ? *dp_cp_ : dp();
  }

  // Where ep > 1: the ranks that hold all experts together, "ep"; those that hold the same experts
  // as this one, in the same replica, "expert_dp", and in all replicas, "expert_batch".
  Communicator& ep() const { return *ep_; }
  Communicator& expert_dp() const { return *expert_dp_; }
  Communicator& expert_batch() const {
    return expert_batch_ != nullptr ? *expert_batch_ : *expert_dp_;
  }

  // The grid of ranks; see MeshShape::Grid.
  std::string ToString() const { return shape_.Grid(); }

 private:
  Mesh(const MeshShape& shape, Communicator& world)
      : shape_(shape), coordinate_(shape.CoordinateOf(world.rank())), world_(&world) {}

  MeshShape shape_;
  MeshCoordinate coordinate_;
  Communicator* world_;
  std::array<std::unique_ptr<Communicator>, kMeshAxes.size()> axes_;
  std::unique_ptr<Communicator> data_;            // null: one replica
  std::unique_ptr<Communicator> batch_;           // null: one rank along cp
  std::unique_ptr<Communicator> dp_cp_;           // null: one rank along cp, or one replica
  std::unique_ptr<Communicator> ep_, expert_dp_;  // null: experts are not divided
  std::unique_ptr<Communicator> expert_batch_;    // null: experts are not divided, or one replica
};

}  // namespace lockstep
