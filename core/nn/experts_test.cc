#include "core/nn/experts.h"

#include <cstdint>
#include <optional>
#include <vector>

#include "core/autograd/testing/arrays.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

class ExpertsTest : public ::testing::Test {
 protected:
  static constexpr Routing kRouting = {.experts = 3, .chosen = 2};

  // What rows with these choices, two for each, are sent to.
  ExpertRows Rows(const std::vector<int32_t>& choices, int64_t leaf_rows = 0,
                  std::optional<int64_t> capacity = std::nullopt) {
    const auto rows = static_cast<int64_t>(choices.size()) / 2;
    return {kernels_, kRouting, Upload(kernels_, {rows, 2}, choices), leaf_rows, capacity};
  }
  std::vector<int32_t> Integers(const Tensor& x) {
    return {x.data<int32_t>(), x.data<int32_t>() + x.elements()};
  }
  std::vector<double> Numbers(const Tensor& x) { return Download(kernels_, x).value; }

  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
};

TEST_F(ExpertsTest, RowsAreOrderedByExpertAndTokenLeaf) {
  const ExpertRows rows = Rows({2, 0, 0, 2, 2, 0, 0, 2}, /*leaf_rows=*/2);
  EXPECT_THAT(Integers(rows.sources()), ElementsAre(0, 1, 2, 3, 0, 1, 2, 3));
  EXPECT_THAT(Integers(rows.places()), ElementsAre(4, 0, 1, 5, 6, 2, 3, 7));
  EXPECT_THAT(rows.counts(), ElementsAre(4, 0, 4));
  EXPECT_EQ(rows.Of(0), (Range{0, 4}));
  EXPECT_EQ(rows.Of(1).count, 0);
  EXPECT_EQ(rows.Of(2, 1), (Range{6, 2}));
}

TEST_F(ExpertsTest, TheFirstChoicesFitIntoACapacity) {
  const ExpertRows rows = Rows({0, 1, 0, 2, 0, 1}, 0, /*capacity=*/2);
  EXPECT_THAT(Integers(rows.places()), ElementsAre(0, 2, 1, 4, -1, 3));
  EXPECT_THAT(Integers(rows.sources()), ElementsAre(0, 1, 0, 2, 1, -1));
  EXPECT_THAT(rows.counts(), ElementsAre(3, 2, 1));
  EXPECT_EQ(rows.used(), 5);
}

// The second of two ranks: its rows come behind those of the first, which has chosen expert 0 once
// and expert 1 twice.
TEST_F(ExpertsTest, CapacitiesCountTheChoicesOfRanksBefore) {
  const RowRanks ranks = {.size = 2, .index = 1, .gather = [](const std::vector<int64_t>& own) {
                            std::vector<int64_t> all = {1, 2, 3};
                            all.insert(all.end(), own.begin(), own.end());
                            return all;
                          }};
  const ExpertRows rows(kernels_, kRouting, Upload(kernels_, {3, 2}, {0, 1, 0, 2, 0, 1}), 0,
                        /*capacity=*/3, ranks);
  EXPECT_THAT(Integers(rows.places()), ElementsAre(0, 2, 1, -1, -1, -1));
  EXPECT_THAT(rows.counts(), ElementsAre(3, 2, 1));
  EXPECT_THAT(rows.counts_of_all(), ElementsAre(4, 4, 4));
}

// Two ranks, two experts, two leaves: what arrives by (rank, expert, leaf) is ordered by (expert,
// rank, leaf).
TEST_F(ExpertsTest, ReceivedRowsAreOrderedByExpert) {
  const ReceivedRows rows(kernels_, 2, 2, 2, {1, 0, 2, 1, 0, 2, 1, 0});
  EXPECT_EQ(rows.dispatched(), 7);
  EXPECT_EQ(rows.leaves(), 4);
  EXPECT_EQ(rows.From(0), (Range{0, 4}));
  EXPECT_EQ(rows.From(1), (Range{4, 3}));
  EXPECT_THAT(Integers(rows.arrivals()), ElementsAre(0, 4, 5, 1, 2, 3, 6));
  EXPECT_THAT(Integers(rows.places()), ElementsAre(0, 3, 4, 5, 1, 2, 6));
  EXPECT_EQ(rows.Of(0), (Range{0, 3}));
  EXPECT_EQ(rows.Of(0, 3), (Range{1, 2}));
  EXPECT_EQ(rows.Of(1, 0), (Range{3, 2}));
  EXPECT_EQ(rows.Of(1, 3).count, 0);
}

TEST_F(ExpertsTest, BiasesRiseWhereLoadsAreLow) {
  ExpertLoad load("router", 3, /*bias_rate=*/0.5);
  load.Materialize(kernels_);
  load.Count(kernels_, Rows({0, 1, 0, 1}));
  load.Count(kernels_, Rows({0, 1}));
  load.Count(kernels_, Rows({0, 2}));
  load.Update(kernels_, /*weight=*/1);
  EXPECT_THAT(Numbers(load.mean), ElementsAre(0.5, 0.375, 0.125));
  EXPECT_THAT(Numbers(load.bias()), ElementsAre(-0.5, -0.5, 0.5));
  // The next step counts anew. Experts with the mean load keep their bias.
  load.Count(kernels_, Rows({0, 1, 1, 2, 2, 0}));
  load.Update(kernels_, /*weight=*/1);
  EXPECT_THAT(Numbers(load.bias()), ElementsAre(-0.5, -0.5, 0.5));
  ExpertLoad unbiased("router", 3, /*bias_rate=*/0);
  unbiased.Materialize(kernels_);
  EXPECT_FALSE(unbiased.bias().defined());
}

}  // namespace
}  // namespace lockstep
