#include "core/run/mesh_choice.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

// Four shards, which one, two or four data-parallel ranks divide.
bool DividesFourShards(const MeshShape& mesh) { return 4 % mesh.data_ranks() == 0; }

TEST(MeshChoiceTest, KeepsTheMeshWhereThereAreRanksForIt) {
  const MeshShape mesh = {.pp = 2, .dp = 2, .tp = 2};
  EXPECT_EQ(LargestMesh(mesh, 8, DividesFourShards), mesh);
}

TEST(MeshChoiceTest, TakesTheMostRanksThatDivideTheCut) {
  EXPECT_EQ(LargestMesh({.dp = 4}, 3, DividesFourShards), (MeshShape{.dp = 2}));
  EXPECT_EQ(LargestMesh({.dp = 4}, 1, DividesFourShards), (MeshShape{}));
  EXPECT_EQ(LargestMesh({.dp = 2}, 5, DividesFourShards), (MeshShape{.dp = 4}));
}

TEST(MeshChoiceTest, GivesUpDataParallelRanksBeforeThoseThatDivideTheModel) {
  EXPECT_EQ(LargestMesh({.dp = 2, .tp = 2}, 3, DividesFourShards), (MeshShape{.tp = 2}));
  EXPECT_EQ(LargestMesh({.pp = 2, .dp = 2, .tp = 2}, 6, DividesFourShards),
            (MeshShape{.pp = 2, .tp = 2}));
}

TEST(MeshChoiceTest, ExpertsStayOnRanksThatDivideThem) {
  EXPECT_THAT(SmallerMeshes({.dp = 4, .ep = 4}, 2),
              ElementsAre(MeshShape{.dp = 2, .ep = 2}, MeshShape{.dp = 2}, MeshShape{}));
}

TEST(MeshChoiceTest, NoneMayFit) {
  EXPECT_EQ(LargestMesh({.dp = 4}, 4, [](const MeshShape&) { return false; }), std::nullopt);
}

}  // namespace
}  // namespace lockstep
