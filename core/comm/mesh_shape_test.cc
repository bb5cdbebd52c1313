#include "core/comm/mesh_shape.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(MeshShapeTest, RanksAreLaidOutWithTpInnermost) {
  const MeshShape shape = {.pp = 2, .replicas = 5, .dp = 3, .cp = 2, .tp = 4};
  EXPECT_EQ(shape.ranks(), 240);
  EXPECT_EQ(shape.data_ranks(), 15);
  int rank = 0;
  for (int pp = 0; pp < 2; ++pp) {
    for (int replica = 0; replica < 5; ++replica) {
      for (int dp = 0; dp < 3; ++dp) {
        for (int cp = 0; cp < 2; ++cp) {
          for (int tp = 0; tp < 4; ++tp, ++rank) {
            const MeshCoordinate at = {.pp = pp, .replicas = replica, .dp = dp, .cp = cp, .tp = tp};
            EXPECT_EQ(shape.RankAt(at), rank);
            EXPECT_EQ(shape.CoordinateOf(rank), at);
          }
        }
      }
    }
  }
}

TEST(MeshShapeTest, CountsTheAxesThatAreDivided) {
  EXPECT_EQ(MeshShape().divided_axes(), 0);
  for (const MeshAxis axis : kMeshAxes) {
    MeshShape shape;
    shape[axis] = 4;
    EXPECT_EQ(shape.divided_axes(), 1) << Name(axis);
  }
  EXPECT_EQ((MeshShape{.pp = 2, .dp = 2}.divided_axes()), 2);
  EXPECT_EQ((MeshShape{.pp = 2, .replicas = 3, .dp = 4, .cp = 6, .tp = 5}.divided_axes()), 5);
}

TEST(MeshShapeTest, Parses) {
  EXPECT_EQ(MeshShape::Parse("dp=2,tp=4").value(), (MeshShape{.pp = 1, .dp = 2, .tp = 4}));
  EXPECT_EQ(MeshShape::Parse(" pp = 3 , dp=2 ").value(), (MeshShape{.pp = 3, .dp = 2, .tp = 1}));
  EXPECT_EQ(MeshShape::Parse("replicas=2,dp=3").value(), (MeshShape{.replicas = 2, .dp = 3}));
  EXPECT_EQ(MeshShape::Parse("").value(), MeshShape());
  for (const int replicas : {1, 2}) {
    const MeshShape shape = {.pp = 5, .replicas = replicas, .dp = 6, .tp = 7};
    EXPECT_EQ(MeshShape::Parse(shape.ToString()).value(), shape);
  }
}

TEST(MeshShapeTest, NamesReplicasWhereThereAreSeveral) {
  EXPECT_EQ((MeshShape{.dp = 3}.ToString()), "pp=1,dp=3,tp=1");
  EXPECT_EQ((MeshShape{.replicas = 2, .dp = 3}.ToString()), "pp=1,replicas=2,dp=3,tp=1");
  EXPECT_EQ((MeshShape{.dp = 3, .cp = 2}.ToString()), "pp=1,dp=3,cp=2,tp=1");
}

TEST(MeshShapeTest, RanksThatDivideExpertsAreNoAxis) {
  const MeshShape shape = {.dp = 2, .cp = 2, .ep = 4};
  EXPECT_EQ(shape.ranks(), 4);
  EXPECT_EQ(shape.ToString(), "pp=1,dp=2,cp=2,tp=1,ep=4");
  EXPECT_EQ(MeshShape::Parse(shape.ToString()).value(), shape);
  EXPECT_TRUE(shape.Check(4).ok());
  EXPECT_EQ(MeshShape({.dp = 3, .ep = 2}).Check(3).message(),
            "mesh pp=1,dp=3,tp=1,ep=2: ep is 2, but must divide dp x cp, which is 3");
}

TEST(MeshShapeTest, RefusesWhatItCannotRead) {
  const auto message = [](const std::string& text) {
    return std::string(MeshShape::Parse(text).status().message());
  };
  EXPECT_THAT(message("sp=2"), AllOf(HasSubstr("no axis \"sp\""), HasSubstr("dp=2,tp=4")));
  EXPECT_THAT(message("dp=2,dp=2"), HasSubstr("axis dp is given twice"));
  for (const char* size : {"dp", "dp=", "dp=0", "dp=-1", "dp=two", "dp=2x", "dp=99999999999"}) {
    EXPECT_THAT(message(size), HasSubstr("axis dp needs a size of 1 or more")) << size;
  }
}

TEST(MeshShapeTest, ChecksTheNumberOfRanks) {
  const MeshShape shape = {.pp = 2, .dp = 2, .tp = 2};
  EXPECT_TRUE(shape.Check(8).ok());
  EXPECT_THAT(std::string(shape.Check(6).message()),
              AllOf(HasSubstr("pp=2,dp=2,tp=2 takes 8 ranks (2 x 2 x 2), but there are 6"),
                    HasSubstr("start 8"), HasSubstr("multiply to 6")));
  EXPECT_THAT(std::string(MeshShape{.replicas = 3, .dp = 2}.Check(7).message()),
              HasSubstr("takes 6 ranks (1 x 3 x 2 x 1), but there are 7"));
  EXPECT_THAT(std::string(MeshShape{.dp = 0}.Check(1).message()), HasSubstr("axis dp has size 0"));
}

TEST(MeshShapeTest, Grid) {
  EXPECT_EQ((MeshShape{.pp = 2, .dp = 2, .tp = 3}.Grid()),
            "mesh pp=2,dp=2,tp=3, 12 ranks\n"
            "                  tp 0  tp 1  tp 2\n"
            "  pp 0  dp 0         0     1     2\n"
            "        dp 1         3     4     5\n"
            "  pp 1  dp 0         6     7     8\n"
            "        dp 1         9    10    11\n");
  EXPECT_EQ((MeshShape{.replicas = 2, .dp = 2, .tp = 2}.Grid()),
            "mesh pp=1,replicas=2,dp=2,tp=2, 8 ranks\n"
            "                              tp 0  tp 1\n"
            "  pp 0  replica 0   dp 0         0     1\n"
            "                    dp 1         2     3\n"
            "        replica 1   dp 0         4     5\n"
            "                    dp 1         6     7\n");
  EXPECT_EQ((MeshShape{.dp = 2, .cp = 2, .tp = 2}.Grid()),
            "mesh pp=1,dp=2,cp=2,tp=2, 8 ranks\n"
            "                          tp 0  tp 1\n"
            "  pp 0  dp 0    cp 0         0     1\n"
            "                cp 1         2     3\n"
            "        dp 1    cp 0         4     5\n"
            "                cp 1         6     7\n");
}

}  // namespace
}  // namespace lockstep
