// The suite of all backends in all dtypes, and what the GPU promises beyond it.

#include "core/kernels/cuda/cuda_kernels.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/cuda/allocator.h"
#include "core/cuda/context.h"
#include "core/kernels/kernels_suite.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

// Memory of a context of its own, which it keeps. Fills it with NaN of every width before it hands
// it out: a kernel that reads what nobody wrote, its own scratch included, shows.
class PoisonedAllocator final : public Allocator {
 public:
  PoisonedAllocator() : context_(CudaContext::Create(0).value()), allocator_(*context_) {}

  CudaContext& context() { return *context_; }
  Device device() const override { return allocator_.device(); }

 protected:
  void* AllocateBlock(int64_t bytes) override {
    void* const block = allocator_.Allocate(bytes, MemoryClass::kWorkspace);
    cudaMemsetAsync(block, 0xff, static_cast<size_t>(bytes), context_->stream());
    return block;
  }
  void FreeBlock(void* block, int64_t bytes) override {
    allocator_.Free(block, bytes, MemoryClass::kWorkspace);
  }

 private:
  const std::unique_ptr<CudaContext> context_;
  CudaAllocator allocator_;
};

KernelsBackend Computing(const char* name, DType dtype) {
  return {.name = name,
          .make_allocator = [] { return std::make_unique<PoisonedAllocator>(); },
          .make_kernels =
              [](Allocator& allocator) {
                auto& poisoned = dynamic_cast<PoisonedAllocator&>(allocator);
                return std::make_unique<CudaKernels>(poisoned.context(), allocator);
              },
          .dtype = dtype,
          .batch_norm_of_library = true,
          .attention_by_positions = true};
}

INSTANTIATE_TEST_SUITE_P(Cuda, KernelsSuite,
                         testing::Values(Computing("F32", DType::kF32),
                                         Computing("F16", DType::kF16),
                                         Computing("BF16", DType::kBF16)),
                         testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(Cuda, KernelsSuite16,
                         testing::Values(Computing("F16", DType::kF16),
                                         Computing("BF16", DType::kBF16)),
                         testing::PrintToStringParamName());

TEST(CudaKernelsTest, WorkspaceIsBookedAndGivenBack) {
  const std::unique_ptr<CudaContext> context = CudaContext::Create(0).value();
  CudaAllocator allocator(*context);
  CudaKernels kernels(*context, allocator);
  const Tensor x = kernels.Empty({100, 64}), sums = kernels.Empty({64});
  kernels.Fill(x, 1);
  kernels.ColumnSums(x, Write::kOverwrite, sums);
  EXPECT_GT(allocator.books().peak(MemoryClass::kWorkspace), 0);
  EXPECT_EQ(allocator.books().live(MemoryClass::kWorkspace), 0);
}

// An index of 32 bits would wrap around. The table takes 4 GiB.
TEST(CudaKernelsTest, EmbeddingOfATableOfMoreThan2To31Elements) {
  constexpr int64_t kWidth = 4096, kWords = (int64_t{1} << 31) / kWidth + 1;
  constexpr uint16_t kThree = 0x4040;  // 3 in bf16
  const std::unique_ptr<CudaContext> context = CudaContext::Create(0).value();
  CudaAllocator allocator(*context);
  CudaKernels kernels(*context, allocator);
  const Tensor table = kernels.Empty({kWords, kWidth}, DType::kBF16);
  const Tensor y = kernels.Empty({1, kWidth}, DType::kBF16);
  const Tensor ids = kernels.Empty({1}, DType::kI32);
  const int32_t last = kWords - 1;
  kernels.Fill(table.View(last * kWidth, {kWidth}), 3);
  kernels.CopyFromHost(&last, ids);
  kernels.Embedding(ids, table, y);
  std::vector<uint16_t> word(kWidth);
  kernels.CopyToHost(y, word.data());
  EXPECT_THAT(word, testing::Each(kThree));
}

}  // namespace
}  // namespace lockstep
