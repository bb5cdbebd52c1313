#include "core/run/strategy/shard_sum.h"

#include <cmath>  // std::ldexp
#include <cstddef>
#include <cstdint>
#include <cstring>  // std::memcmp, std::memcpy
#include <vector>

#include "core/comm/reduce.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/tensor/allocator.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr int64_t kElements = 37;

class ShardSumTest : public testing::Test {
 protected:
  // Numbers of mixed sign and magnitude, so that each order of a sum gives other bits.
  Tensor Numbers(int64_t seed, DType dtype) {
    const Tensor numbers = kernels_.Empty({kElements});
    for (int64_t i = 0; i < kElements; ++i) {
      const int64_t mixed = (seed * 7919 + i * 104729) % 1009;
      numbers.data<float>()[i] =
          std::ldexp(static_cast<float>(mixed - 504), static_cast<int>(mixed % 9) - 8);
    }
    if (dtype == DType::kF32) return numbers;
    const Tensor rounded = kernels_.Empty({kElements}, dtype, MemoryClass::kGradients);
    kernels_.Cast(numbers, rounded);
    return rounded;
  }

  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
};

TEST_F(ShardSumTest, IsTheSumOfACommunicator) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int64_t shards = 1; shards <= 9; ++shards) {
      const Tensor tensor = kernels_.Empty({kElements}, dtype, MemoryClass::kGradients);
      ShardSum sum(kernels_, tensor, shards, MemoryClass::kGradients);
      for (int64_t step = 0; step < 2; ++step) {
        std::vector<Tensor> leaves;
        std::vector<const std::byte*> inputs;
        for (int64_t shard = 0; shard < shards; ++shard) {
          leaves.push_back(Numbers(step * shards + shard, dtype));
          inputs.push_back(leaves.back().raw());
          kernels_.Copy(leaves.back(), tensor);
          EXPECT_EQ(sum.Add(), shard + 1 == shards);
        }
        const Tensor expected = kernels_.Empty({kElements}, dtype, MemoryClass::kGradients);
        ReduceByTree(dtype, ReduceOp::kSum, inputs, {expected.raw()}, 0, kElements);
        EXPECT_EQ(std::memcmp(tensor.raw(), expected.raw(), static_cast<size_t>(tensor.bytes())), 0)
            << Name(dtype) << ", " << shards << " shards, step " << step;
      }
    }
  }
}

TEST_F(ShardSumTest, KeepsAPartialSumForEachLevelOfTheTree) {
  const Tensor tensor = kernels_.Empty({kElements}, DType::kBF16, MemoryClass::kGradients);
  const auto partial_sums = [&](int64_t shards) {
    const int64_t before = allocator_.books().live(MemoryClass::kWorkspace);
    const ShardSum sum(kernels_, tensor, shards, MemoryClass::kWorkspace);
    EXPECT_EQ(allocator_.books().live(MemoryClass::kWorkspace) - before, sum.bytes());
    return sum.bytes() / AlignedBytes(tensor.bytes());
  };
  EXPECT_EQ(partial_sums(1), 0);
  EXPECT_EQ(partial_sums(2), 1);
  EXPECT_EQ(partial_sums(3), 1);
  EXPECT_EQ(partial_sums(4), 2);
  EXPECT_EQ(partial_sums(8), 3);
  EXPECT_EQ(partial_sums(9), 3);
}

}  // namespace
}  // namespace lockstep
