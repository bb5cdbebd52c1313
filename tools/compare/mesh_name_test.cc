#include "gtest/gtest.h"
#include "tools/compare/comparison.h"

namespace lockstep {
namespace {

TEST(MeshNameTest, LeavesOutWhatIsNotDivided) {
  EXPECT_EQ(ShortMesh("pp=1,dp=2,tp=1"), "dp=2");
  EXPECT_EQ(ShortMesh("pp=2,dp=1,tp=11"), "pp=2 tp=11");
  EXPECT_EQ(ShortMesh("pp=1,dp=1,tp=1"), "");
  EXPECT_EQ(ShortMesh(""), "");
}

TEST(MeshNameTest, AKindHasNoSizes) {
  EXPECT_EQ(MeshKind("pp=1,dp=2,tp=4"), "dp x tp");
  EXPECT_EQ(MeshKind("pp=1,dp=8,tp=1"), "dp");
  EXPECT_EQ(MeshKind("pp=1,dp=1,tp=1"), "");
}

}  // namespace
}  // namespace lockstep
