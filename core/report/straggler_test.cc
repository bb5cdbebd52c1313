#include "core/report/straggler.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(StragglerTest, RowsOfAllAttemptsAreAddedUp) {
  const Straggler first = {
      .step = 19, .rank = 3, .part = Phase::kData, .factor = 1.7, .seconds = 0.1};
  const Straggler worst = {
      .step = 39, .rank = 3, .part = Phase::kOptimizer, .factor = 2.1, .seconds = 1.0 / 3};
  const Straggler other = {
      .step = 39, .rank = 1, .part = Phase::kBackward, .factor = 1.6, .seconds = 0.3};
  const std::string path = testing::TempDir() + "/metrics.jsonl";
  ASSERT_EQ(
      WriteFileAtomically(
          path, absl::StrCat("{\"step\":0}\n", first.ToRow(), "\n", worst.ToRow(), "\n",
                             other.ToRow(), "\n{\"step\":59,\"straggler\":{\"rank\":\"x\"}}\n",
                             "{\"step\":59,\"straggl")),
      absl::OkStatus());
  const std::vector<SlowRank> slow = ReadSlowRanks(path).value();
  ASSERT_EQ(slow.size(), 2u);
  EXPECT_EQ(slow[0].worst.rank, 1);
  EXPECT_EQ(slow[0].windows, 1);
  EXPECT_EQ(slow[0].worst.part, Phase::kBackward);
  EXPECT_EQ(slow[1].worst.rank, 3);
  EXPECT_EQ(slow[1].windows, 2);
  EXPECT_EQ(slow[1].worst.step, 39);
  EXPECT_EQ(slow[1].worst.part, Phase::kOptimizer);
  EXPECT_EQ(slow[1].worst.factor, 2.1);
  EXPECT_EQ(slow[1].worst.seconds, 1.0 / 3);
}

TEST(StragglerTest, AFileThatIsNotThereIsAnError) {
  EXPECT_TRUE(absl::IsNotFound(ReadSlowRanks(testing::TempDir() + "/none").status()));
}

}  // namespace
}  // namespace lockstep
