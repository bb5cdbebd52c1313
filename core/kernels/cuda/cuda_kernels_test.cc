// The suite of all backends in all dtypes, and what the GPU promises beyond it.

#include "core/kernels/cuda/cuda_kernels.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/philox.h"
#include "core/base/testing/captured_log.h"
#include "core/cuda/allocator.h"
#include "core/cuda/context.h"
#include "core/kernels/cuda/attention_sdpa.h"
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
    return Poisoned(bytes, FirstUse::kKernels, context_->stream());
  }
  void* AllocateUploadBlock(int64_t bytes) override {
    return Poisoned(bytes, FirstUse::kUpload, context_->copy_stream());
  }
  void FreeBlock(void* block, int64_t bytes) override {
    allocator_.Free(block, bytes, MemoryClass::kWorkspace);
  }

 private:
  // Memory that is used first on the stream.
  void* Poisoned(int64_t bytes, FirstUse first_use, cudaStream_t stream) {
    void* const block = allocator_.Allocate(bytes, MemoryClass::kWorkspace, first_use);
    cudaMemsetAsync(block, 0xff, static_cast<size_t>(bytes), stream);
    return block;
  }

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
          .batch_norm_of_library = true};
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

// Asked for cuDNN's attention, the kernels give our own's numbers within the dtype's precision, and
// the same bits again; where there is no such cuDNN, our own's bits.
class CudnnAttentionTest : public testing::TestWithParam<DType> {
 protected:
  static constexpr int64_t kBatch = 2, kTime = 65, kHeads = 2, kKeyHeads = 1, kWidth = 64;

  // y, the log-sum-exp and the gradient, in fp32.
  std::vector<std::vector<float>> Attend(AttentionKernels by) {
    CudaKernels kernels(*context_, allocator_, Fp32Products::kFp32, BiasGradients::kOwnOrder, by);
    Attention attention;
    attention.heads = attention.total_heads = kHeads;
    attention.key_heads = kKeyHeads;
    attention.head_width = kWidth;
    const auto random = [&](int64_t width, uint64_t key) {
      std::vector<float> values(static_cast<size_t>(kBatch * kTime * width));
      Philox(key).FillUniform(values, 0, 0, -1, 1);
      const Tensor wide = kernels.Empty({kBatch, kTime, width});
      const Tensor x = kernels.Empty(wide.shape(), GetParam());
      kernels.CopyFromHost(values.data(), wide);
      kernels.Cast(wide, x);
      return x;
    };
    const Tensor qkv = random(attention.packed_width(), 1);
    const Tensor dy = random(attention.query_width(), 2);
    const Tensor y = kernels.EmptyLike(dy), dqkv = kernels.EmptyLike(qkv);
    const Tensor log_sum_exp = kernels.Empty({kBatch, kHeads, kTime});
    kernels.AttentionForward(attention, qkv, y, log_sum_exp);
    kernels.AttentionBackward(attention, qkv, y, log_sum_exp, dy, dqkv);
    std::vector<std::vector<float>> results;
    for (const Tensor& x : {y, log_sum_exp, dqkv}) {
      const Tensor wide = kernels.Empty(x.shape());
      kernels.Cast(x, wide);
      kernels.CopyToHost(wide, results.emplace_back(static_cast<size_t>(x.elements())).data());
    }
    return results;
  }

  const std::unique_ptr<CudaContext> context_ = CudaContext::Create(0).value();
  CudaAllocator allocator_{*context_};
};

INSTANTIATE_TEST_SUITE_P(Dtypes, CudnnAttentionTest, testing::Values(DType::kF16, DType::kBF16),
                         [](const auto& dtype) { return std::string(Name(dtype.param)); });

TEST_P(CudnnAttentionTest, AgreesWithOurOwnAndRepeatsItsBits) {
  const auto own = Attend(AttentionKernels::kOwn);
  const CapturedLog log;
  const auto first = Attend(AttentionKernels::kCudnn);
  if (cuda::IsBuiltWithCudnnFrontend()) {
    EXPECT_THAT(log.lines(), testing::IsEmpty());  // cuDNN refuses nothing
  } else {
    EXPECT_THAT(log.lines(), testing::ElementsAre(testing::HasSubstr("forward"),
                                                  testing::HasSubstr("backward")));
    EXPECT_EQ(first, own);
  }
  EXPECT_EQ(first, Attend(AttentionKernels::kCudnn));
  const double unit = GetParam() == DType::kF16 ? 0x1p-10 : 0x1p-7;
  for (size_t i = 0; i < own.size(); ++i) {
    EXPECT_THAT(first[i],
                testing::Pointwise(testing::FloatNear(static_cast<float>(16 * unit)), own[i]));
  }
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
