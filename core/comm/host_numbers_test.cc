#include "core/comm/host_numbers.h"

#include <vector>

#include "core/comm/launch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

TEST(HostNumbersTest, ReducesAndBroadcasts) {
  const absl::Status status = RunRanks(3, {}, [](RankHandle& handle) -> absl::Status {
    Communicator& ranks = handle.comm();
    const int rank = handle.rank();
    std::vector<double> sums = {0.5 * rank, 1e300};
    EXPECT_TRUE(AllReduceNumbers(ranks, absl::MakeSpan(sums), ReduceOp::kSum, "sums").ok());
    EXPECT_THAT(sums, ElementsAre(1.5, 3e300));
    std::vector<float> largest = {-1.0f - static_cast<float>(rank)};
    EXPECT_TRUE(AllReduceNumbers(ranks, absl::MakeSpan(largest), ReduceOp::kMax, "largest").ok());
    EXPECT_THAT(largest, ElementsAre(-1.0f));
    std::vector<int64_t> counts = {(int64_t{1} << 60) + rank};
    EXPECT_TRUE(AllReduceNumbers(ranks, absl::MakeSpan(counts), ReduceOp::kMin, "counts").ok());
    EXPECT_THAT(counts, ElementsAre(int64_t{1} << 60));
    std::vector<int64_t> told = {rank, 10 + rank};
    EXPECT_TRUE(BroadcastNumbers(ranks, absl::MakeSpan(told), 2, "told").ok());
    EXPECT_THAT(told, ElementsAre(2, 12));
    std::vector<double> loss = {0.25 * rank};
    EXPECT_TRUE(BroadcastNumbers(ranks, absl::MakeSpan(loss), 1, "loss").ok());
    EXPECT_THAT(loss, ElementsAre(0.25));
    const std::vector<int64_t> sent = {10 * rank, 10 * rank + 1, 10 * rank + 2};
    std::vector<int64_t> received(3), gathered(9);
    EXPECT_TRUE(ExchangeNumbers(ranks, sent, absl::MakeSpan(received), "sent").ok());
    EXPECT_THAT(received, ElementsAre(rank, 10 + rank, 20 + rank));
    EXPECT_TRUE(GatherNumbers(ranks, sent, absl::MakeSpan(gathered), "sent").ok());
    EXPECT_THAT(gathered, ElementsAre(0, 1, 2, 10, 11, 12, 20, 21, 22));
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace lockstep
