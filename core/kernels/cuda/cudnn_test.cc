#include "core/kernels/cuda/cudnn.h"

#include <string>

#include "core/base/status.h"
#include "core/kernels/cuda/cudnn_convolutions.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// OK, or what Describe throws.
absl::Status Described(const Images& images) {
  TensorDescriptor descriptor;
  try {
    Describe(descriptor, DType::kBF16, images);
  } catch (const StatusException& error) {
    return error.status();
  }
  return absl::OkStatus();
}

// cuDNN counts elements with 32 bits; no product of extents overflows on the way to that verdict.
TEST(CudnnTest, ImagesOf2To31ElementsAreRefused) {
  constexpr int64_t kHalf = int64_t{1} << 30, kHuge = int64_t{1} << 62;
  EXPECT_TRUE(Described({.batch = 512, .height = 224, .width = 224, .channels = 64}).ok());
  EXPECT_TRUE(Described({.batch = kHalf, .height = 1, .width = 1, .channels = 1}).ok());
  for (const Images& images : {Images{.batch = kHalf, .height = 2, .width = 1, .channels = 1},
                               Images{.batch = 2048, .height = 128, .width = 128, .channels = 64},
                               Images{.batch = kHuge, .height = 4, .width = 2, .channels = 1}}) {
    const absl::Status status = Described(images);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("2^31"), HasSubstr("micro-batch")));
  }
}

TEST(CudnnTest, Tf32IsForWhatItHoldsExactlyAndWhereItIsAskedFor) {
  using Pass = CudnnConvolutions::Pass;
  constexpr auto kAllows = CudnnConvolutions::AllowsTf32;
  for (const Pass pass : {Pass::kForward, Pass::kBackwardInput, Pass::kBackwardWeight}) {
    EXPECT_FALSE(kAllows(pass, DType::kF32, Fp32Products::kFp32));
    EXPECT_TRUE(kAllows(pass, DType::kF32, Fp32Products::kTf32));
  }
  EXPECT_TRUE(kAllows(Pass::kBackwardWeightOfWidened, DType::kF32, Fp32Products::kFp32));
}

}  // namespace
}  // namespace lockstep::cuda
