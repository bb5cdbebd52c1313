// Which of cuDNN's engines computes weight gradients of 16-bit convolutions, and what does where
// none serves: the emulation leaves out what the environment says.

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/testing/captured_log.h"
#include "core/base/testing/scoped_environment.h"
#include "core/cuda/allocator.h"
#include "core/cuda/context.h"
#include "core/cuda/emulation/reads.h"
#include "core/kernels/cuda/cuda_kernels.h"
#include "core/kernels/cuda/cudnn.h"
#include "core/kernels/cuda/weight_gradient_graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using emulation::ReadCounter;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kEngines = "LOCKSTEP_EMULATED_CUDNN_ENGINES";
constexpr Window kWindow = {3, 1, 1};

class WeightGradientChoiceTest : public testing::Test {
 protected:
  static constexpr int64_t kImages = 5, kSide = 6, kIn = 8;

  Tensor Filled(const Shape& shape, float value) {
    const Tensor x = kernels_.Empty(shape, DType::kBF16);
    kernels_.Fill(x, value);
    return x;
  }

  // The gradient of a 3 x 3 convolution of images of twos to `out` channels, whose own gradients
  // are ones. An element is 2 for each place that its part of the window can have: at the middle of
  // the window all pixels of all images.
  struct Outcome {
    float middle;
    int64_t bytes_read;  // of x, by kernels of our own: the copies
  };
  Outcome Gradient(int64_t out, Write write = Write::kOverwrite, float start = 0) {
    const Tensor x = Filled({kImages, kSide, kSide, kIn}, 2);
    const Tensor dy = Filled({kImages, kSide, kSide, out}, 1);
    const Tensor dw = kernels_.Empty({out, 3, 3, kIn});
    kernels_.Fill(dw, start);
    context_->Synchronize();
    const ReadCounter read(x.raw(), static_cast<size_t>(x.bytes()));
    kernels_.ConvolutionBackwardWeight(dy, x, kWindow, write, dw, Tensor());
    std::vector<float> values(static_cast<size_t>(dw.elements()));
    kernels_.CopyToHost(dw, values.data());
    return {values[4 * kIn], read.bytes()};
  }

  static constexpr float kMiddle = 2 * kImages * kSide * kSide;
  static constexpr int64_t kBytesOfX = kImages * kSide * kSide * kIn * 2;

  const std::unique_ptr<CudaContext> context_ = CudaContext::Create(0).value();
  CudaAllocator allocator_{*context_};
  CudaKernels kernels_{*context_, allocator_};
};

TEST_F(WeightGradientChoiceTest, NoCopiesAreMade) {
  const CapturedLog log;
  const Outcome outcome = Gradient(16);
  EXPECT_EQ(outcome.middle, kMiddle);
  EXPECT_EQ(outcome.bytes_read, 0);
  EXPECT_THAT(log.lines(), IsEmpty());
  EXPECT_EQ(Gradient(16, Write::kAccumulate, 7).middle, kMiddle + 7);
}

TEST_F(WeightGradientChoiceTest, EnginesOfTheFallbackModeAreAskedForToo) {
  const ScopedEnvironment fewer(kEngines, "fallback");
  const CapturedLog log;
  const Outcome outcome = Gradient(16);
  EXPECT_EQ(outcome.middle, kMiddle);
  EXPECT_EQ(outcome.bytes_read, 0);
  EXPECT_THAT(log.lines(), IsEmpty());
}

// Copies in fp32 serve instead. That is logged for the first shape, with what became of the
// engines.
TEST_F(WeightGradientChoiceTest, CopiesServeWhereThereIsNoEngine) {
  const ScopedEnvironment none(kEngines, "none");
  const CapturedLog log;
  for (const int64_t out : {16, 24, 16}) {
    const Outcome outcome = Gradient(out);
    EXPECT_EQ(outcome.middle, kMiddle) << out;
    EXPECT_EQ(outcome.bytes_read, kBytesOfX) << out;
  }
  EXPECT_THAT(log.lines(),
              ElementsAre(AllOf(HasSubstr("copies in fp32"), HasSubstr("16 channels out"),
                                HasSubstr("of 0 proposals"))));
  EXPECT_EQ(Gradient(16, Write::kAccumulate, 7).middle, kMiddle + 7);
}

TEST_F(WeightGradientChoiceTest, EnginesThatRoundOrDoNotRepeatTheirBitsAreRefused) {
  const ScopedEnvironment lesser(kEngines, "nondeterministic");
  const CapturedLog log;
  const Outcome outcome = Gradient(16);
  EXPECT_EQ(outcome.middle, kMiddle);
  EXPECT_EQ(outcome.bytes_read, kBytesOfX);
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("of 2 proposals of cuDNN's, 2 may round")));
}

// Else a rank could go from one way to the other, whose last bits may differ.
TEST_F(WeightGradientChoiceTest, IsMadeOnceForAShape) {
  EXPECT_EQ(Gradient(16).bytes_read, 0);
  {
    const ScopedEnvironment none(kEngines, "none");
    EXPECT_EQ(Gradient(16).bytes_read, 0);
    EXPECT_EQ(Gradient(24).bytes_read, kBytesOfX);
  }
  EXPECT_EQ(Gradient(24).bytes_read, kBytesOfX);
}

TEST_F(WeightGradientChoiceTest, WorkspaceIsBookedAndGivenBack) {
  cuda::Cudnn cudnn(*context_);
  cuda::WeightGradientGraphs graphs(cudnn);
  CudaAllocator own(*context_);
  const Tensor dw = kernels_.Empty({16, 3, 3, kIn});
  ASSERT_TRUE(graphs.Run(own, kWindow, Filled({1, kSide, kSide, kIn}, 2),
                         Filled({1, kSide, kSide, 16}, 1), dw));
  EXPECT_GT(own.books().peak(MemoryClass::kWorkspace), 0);
  EXPECT_EQ(own.books().live(MemoryClass::kWorkspace), 0);
}

}  // namespace
}  // namespace lockstep
