#include "core/comm/mesh.h"

#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/comm/launch.h"
#include "core/tensor/allocator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(MeshTest, GroupsAlongEachAxis) {
  const absl::Status status = RunRanks(8, {}, [](RankHandle& handle) -> absl::Status {
    LS_ASSIGN_OR_RETURN(Mesh mesh, Mesh::Create({.pp = 2, .dp = 2, .tp = 2}, handle.comm()));
    EXPECT_EQ(&mesh.world(), &handle.comm());
    EXPECT_EQ(mesh.pp().name(), "pp");
    EXPECT_EQ(mesh.dp().name(), "dp");
    EXPECT_EQ(mesh.tp().name(), "tp");
    if (handle.rank() == 5) {  // pp 1, dp 0, tp 1
      EXPECT_EQ(mesh.coordinate(), (MeshCoordinate{.pp = 1, .dp = 0, .tp = 1}));
      EXPECT_THAT(mesh.pp().members(), ElementsAre(1, 5));
      EXPECT_THAT(mesh.dp().members(), ElementsAre(5, 7));
      EXPECT_THAT(mesh.tp().members(), ElementsAre(4, 5));
    }
    for (const MeshAxis axis : kMeshAxes) {
      EXPECT_EQ(mesh.axis(axis).rank(), mesh.coordinate()[axis]);
      EXPECT_EQ(mesh.axis(axis).size(), mesh.shape()[axis]);
    }
    // One after the other they reach everybody: the sum of all ranks.
    CpuAllocator allocator;
    const Tensor x = Tensor::Empty(allocator, {1}, DType::kI32, MemoryClass::kWorkspace);
    *x.data<int32_t>() = handle.rank();
    for (const MeshAxis axis : kMeshAxes) {
      LS_RETURN_IF_ERROR(mesh.axis(axis).AllReduce(x, x, ReduceOp::kSum, "test").Wait());
    }
    EXPECT_EQ(*x.data<int32_t>(), 28);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

// All that tokens of a batch are divided among, with cp as the fastest.
TEST(MeshTest, ABatchIsDividedAlongDpAndCp) {
  const absl::Status status = RunRanks(8, {}, [](RankHandle& handle) -> absl::Status {
    LS_ASSIGN_OR_RETURN(Mesh mesh, Mesh::Create({.dp = 2, .cp = 2, .tp = 2}, handle.comm()));
    LS_ASSIGN_OR_RETURN(Mesh replicas,
                        Mesh::Create({.replicas = 2, .dp = 2, .cp = 2}, mesh.world()));
    if (handle.rank() == 5) {  // dp 1, cp 0, tp 1; and replica 1, dp 0, cp 1
      EXPECT_THAT(mesh.cp().members(), ElementsAre(5, 7));
      EXPECT_THAT(mesh.data().members(), ElementsAre(1, 5));
      EXPECT_THAT(mesh.batch().members(), ElementsAre(1, 3, 5, 7));
      EXPECT_EQ(mesh.batch().name(), "batch");
      EXPECT_EQ(&mesh.dp_cp(), &mesh.batch());
      EXPECT_THAT(replicas.data().members(), ElementsAre(1, 3, 5, 7));
      EXPECT_EQ(replicas.batch().size(), 8);
      EXPECT_THAT(replicas.dp_cp().members(), ElementsAre(4, 5, 6, 7));
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(MeshTest, UnevenShape) {
  const absl::Status status = RunRanks(6, {}, [](RankHandle& handle) -> absl::Status {
    LS_ASSIGN_OR_RETURN(Mesh mesh, Mesh::Create({.dp = 3, .tp = 2}, handle.comm()));
    EXPECT_EQ(mesh.pp().size(), 1);
    if (handle.rank() == 3) {
      EXPECT_THAT(mesh.dp().members(), ElementsAre(1, 3, 5));
      EXPECT_THAT(mesh.tp().members(), ElementsAre(2, 3));
    }
    return mesh.pp().Barrier("alone").Wait();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(MeshTest, ReplicasAndTheirShards) {
  const absl::Status status = RunRanks(8, {}, [](RankHandle& handle) -> absl::Status {
    LS_ASSIGN_OR_RETURN(Mesh mesh, Mesh::Create({.pp = 2, .replicas = 2, .dp = 2}, handle.comm()));
    if (handle.rank() == 6) {
      EXPECT_EQ(mesh.coordinate(), (MeshCoordinate{.pp = 1, .replicas = 1, .dp = 0, .tp = 0}));
      EXPECT_THAT(mesh.dp().members(), ElementsAre(6, 7));
      EXPECT_THAT(mesh.replicas().members(), ElementsAre(4, 6));
      EXPECT_THAT(mesh.data().members(), ElementsAre(4, 5, 6, 7));
      EXPECT_EQ(mesh.data().rank(), 2);
      EXPECT_EQ(mesh.data().name(), "data");
    }
    return mesh.data().Barrier("all").Wait();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(MeshTest, WithOneReplicaTheDataRanksAreDp) {
  const absl::Status status = RunRanks(2, {}, [](RankHandle& handle) -> absl::Status {
    LS_ASSIGN_OR_RETURN(Mesh mesh, Mesh::Create({.dp = 2}, handle.comm()));
    EXPECT_EQ(&mesh.data(), &mesh.dp());
    EXPECT_EQ(mesh.replicas().size(), 1);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

// Each replica's ranks along dp and cp form runs; ranks with the same place in their run have the
// same experts.
TEST(MeshTest, RunsOfDpAndCpDivideExperts) {
  const absl::Status status = RunRanks(16, {}, [](RankHandle& handle) -> absl::Status {
    LS_ASSIGN_OR_RETURN(Mesh mesh, Mesh::Create({.replicas = 2, .dp = 2, .cp = 2, .tp = 2, .ep = 2},
                                                handle.comm()));
    if (handle.rank() == 5) {
      EXPECT_THAT(mesh.ep().members(), ElementsAre(5, 7));
      EXPECT_THAT(mesh.expert_dp().members(), ElementsAre(1, 5));
      EXPECT_THAT(mesh.expert_batch().members(), ElementsAre(1, 5, 9, 13));
      EXPECT_EQ(mesh.ep().rank(), mesh.shape().ExpertPlaceOf(mesh.coordinate()));
      EXPECT_EQ(mesh.expert_dp().rank(), mesh.shape().ExpertGroupOf(mesh.coordinate()));
    }
    LS_ASSIGN_OR_RETURN(Mesh wide,
                        Mesh::Create({.pp = 2, .dp = 4, .cp = 2, .ep = 4}, handle.comm()));
    if (handle.rank() == 14) {
      EXPECT_THAT(wide.ep().members(), ElementsAre(12, 13, 14, 15));
      EXPECT_THAT(wide.expert_dp().members(), ElementsAre(10, 14));
      EXPECT_EQ(&wide.expert_batch(), &wide.expert_dp());
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(MeshTest, WrongNumberOfRanksIsRefused) {
  const absl::Status status = RunRanks(3, {}, [](RankHandle& handle) -> absl::Status {
    return Mesh::Create({.dp = 2, .tp = 2}, handle.comm()).status();
  });
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("takes 4 ranks (1 x 2 x 2), but there are 3"));
}

}  // namespace
}  // namespace lockstep
