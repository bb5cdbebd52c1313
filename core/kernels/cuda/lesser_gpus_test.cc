// Kernels on GPUs with less shared memory than an H100, and over a cuDNN without what it has for
// some shapes alone: the emulation leaves out what the environment says.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/base/testing/scoped_environment.h"
#include "core/cuda/allocator.h"
#include "core/cuda/context.h"
#include "core/kernels/cuda/cuda_kernels.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class LesserGpusTest : public testing::Test {
 protected:
  Tensor Upload(const Shape& shape, const std::vector<float>& values) {
    const Tensor x = kernels_.Empty(shape);
    kernels_.CopyFromHost(values.data(), x);
    return x;
  }
  std::vector<float> Download(const Tensor& x) {
    std::vector<float> values(static_cast<size_t>(x.elements()));
    kernels_.CopyToHost(x, values.data());
    return values;
  }

  // Attention of one head of `width` elements to one token, which gives the token's value: all 2.
  // Returns the result, or what is thrown.
  absl::StatusOr<std::vector<float>> Attend(int64_t width) {
    Attention attention;
    attention.heads = attention.total_heads = attention.key_heads = 1;
    attention.head_width = width;
    const Tensor qkv = kernels_.Empty({1, 1, 3 * width}), y = kernels_.Empty({1, 1, width});
    kernels_.Fill(qkv, 2);
    const Tensor log_sum_exp = kernels_.Empty({1, 1, 1});
    try {
      kernels_.AttentionForward(attention, qkv, y, log_sum_exp);
      kernels_.AttentionBackward(attention, qkv, y, log_sum_exp, y, kernels_.EmptyLike(qkv));
      return Download(y);
    } catch (const StatusException& error) {
      return error.status();
    }
  }

  const std::unique_ptr<CudaContext> context_ = CudaContext::Create(0).value();
  CudaAllocator allocator_{*context_};
  CudaKernels kernels_{*context_, allocator_};
};

TEST_F(LesserGpusTest, HeadsThatSharedMemoryCannotHoldAreRefusedWithTheWidestThatItCan) {
  EXPECT_THAT(*Attend(256), testing::Each(2));
  const ScopedEnvironment less("LOCKSTEP_EMULATED_SHARED_BYTES",
                               "101376");  // compute capability 8.6
  EXPECT_THAT(*Attend(197), testing::Each(2));
  for (const int64_t width : {198, 256}) {
    const absl::Status status = Attend(width).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(std::to_string(width)), HasSubstr("101376"), HasSubstr("197")));
  }
}

TEST_F(LesserGpusTest, TheBiasIsAddedWhereCudnnDoesNotFuseIt) {
  // 1 x 1 windows: y = w x + bias, with two channels to three.
  const Tensor x = Upload({1, 1, 2, 2}, {1, 2, 3, 4}), w = Upload({3, 1, 1, 2}, {1, 0, 0, 1, 1, 1});
  const Tensor bias = Upload({3}, {10, 20, 30}), y = kernels_.Empty({1, 1, 2, 3});
  const std::vector<float> expected = {11, 22, 33, 13, 24, 37};
  const ScopedEnvironment less("LOCKSTEP_EMULATED_CUDNN_BIAS", "0");
  for (int call = 0; call < 2; ++call) {  // the second one knows
    kernels_.Fill(y, 0);
    kernels_.Convolution(x, w, bias, {.kernel = 1}, y);
    EXPECT_EQ(Download(y), expected) << call;
  }
}

// 257 is no bf16, 258 is.
TEST_F(LesserGpusTest, ABiasOf16BitsIsAddedToSumsThatAreNotRounded) {
  const auto narrow = [this](const Shape& shape, const std::vector<float>& values) {
    const Tensor x = kernels_.Empty(shape, DType::kBF16);
    kernels_.Cast(Upload(shape, values), x);
    return x;
  };
  const Tensor x = narrow({1, 1, 1, 2}, {256, 1}), w = narrow({1, 1, 1, 2}, {1, 1});
  const Tensor y = kernels_.Empty({1, 1, 1, 1}, DType::kBF16), wide = kernels_.Empty(y.shape());
  const ScopedEnvironment less("LOCKSTEP_EMULATED_CUDNN_BIAS", "0");
  kernels_.Convolution(x, w, narrow({1}, {1}), {.kernel = 1}, y);
  kernels_.Cast(y, wide);
  EXPECT_EQ(Download(wide), std::vector<float>{258});
}

}  // namespace
}  // namespace lockstep
