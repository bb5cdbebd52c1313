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
