#include "strategies/data_parallel/buckets.h"

#include <memory>
#include <vector>

#include "core/kernels/cpu/cpu_kernels.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(PlanBucketsTest, FillsInReverseOrderWithASmallFirst) {
  EXPECT_EQ(PlanBuckets({10, 20, 30, 40}, 45, 60), (Buckets{{3}, {2, 1, 0}}));
  EXPECT_EQ(PlanBuckets({10, 20, 30, 40}, 70, 25), (Buckets{{3, 2}, {1}, {0}}));
}

TEST(PlanBucketsTest, AParameterAboveTheLimitHasABucketOfItsOwn) {
  EXPECT_EQ(PlanBuckets({5, 1000, 5}, 10, 10), (Buckets{{2}, {1}, {0}}));
}

TEST(MakeBucketsTest, GradientsAreAlignedViewsAndOddSizesCostNoBytesOnTheWire) {
  CpuAllocator allocator;
  CpuKernels kernels(allocator);
  Parameter odd("odd", {10}, Init::Constant(0)), whole("whole", {4, 16}, Init::Constant(0));
  const std::vector<Parameter*> parameters = {&odd, &whole};
  const std::vector<Tensor> flats = MakeBuckets({{0, 1}}, parameters, DType::kF32, kernels);
  ASSERT_EQ(flats.size(), 1u);
  EXPECT_EQ(flats[0].elements(), 74);
  for (const Parameter* parameter : parameters) {
    EXPECT_TRUE(parameter->gradient.same_storage(flats[0]));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(parameter->gradient.raw()) % kAlignment, 0u);
    EXPECT_EQ(parameter->gradient.shape(), parameter->shape);
  }
}

}  // namespace
}  // namespace lockstep
