// Gradients of convolutions' weights by cuDNN's graph API, against the reference.

#include "core/kernels/cuda/weight_gradient_graph.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "core/cuda/allocator.h"
#include "core/cuda/context.h"
#include "core/kernels/cuda/cuda_kernels.h"
#include "core/kernels/reference.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::cuda {
namespace {

struct Case {
  std::string name;
  int64_t batch, height, width, in, out;
  Window window;
};

// ResNets' windows and others, on images that are no squares. Channels are multiples of 8, as
// cuDNN's engines for tensor cores want them.
const Case kCases[] = {
    {"3x3", 3, 9, 7, 16, 24, {3, 1, 1}},           {"3x3, stride 2", 2, 9, 8, 24, 16, {3, 2, 1}},
    {"3x3, no padding", 2, 6, 5, 8, 8, {3, 1, 0}}, {"1x1", 2, 5, 7, 32, 16, {1, 1, 0}},
    {"1x1, stride 2", 3, 8, 6, 16, 32, {1, 2, 0}}, {"7x7, stride 2", 1, 23, 19, 8, 16, {7, 2, 3}},
};

class WeightGradientGraphTest : public testing::TestWithParam<DType> {
 protected:
  // The same elements for the reference and on the GPU.
  struct Input : reference::Array {
    Tensor tensor;
  };

  // Random numbers of the dtype in [-1, 1).
  Input Random(const Shape& shape, uint64_t key) {
    std::vector<float> values(static_cast<size_t>(shape.elements()));
    Philox(key).FillUniform(values, 0, 0, -1, 1);
    const Tensor wide = kernels_.Empty(shape), x = kernels_.Empty(shape, GetParam());
    kernels_.CopyFromHost(values.data(), wide);
    kernels_.Cast(wide, x);
    kernels_.Cast(x, wide);
    kernels_.CopyToHost(wide, values.data());
    return {reference::Array(shape, std::vector<double>(values.begin(), values.end())), x};
  }

  // The tensors of a case.
  struct Tensors {
    Input x, dy;
    Tensor dw;
  };
  Tensors Make(const Case& c) {
    const Shape dy = {c.batch, c.window.Output(c.height), c.window.Output(c.width), c.out};
    const Tensors made = {Random({c.batch, c.height, c.width, c.in}, 1), Random(dy, 2),
                          kernels_.Empty({c.out, c.window.kernel, c.window.kernel, c.in})};
    kernels_.Fill(made.dw, std::numeric_limits<float>::quiet_NaN());
    return made;
  }

  // The gradient; empty: cuDNN has none.
  std::vector<float> Gradient(WeightGradientGraphs& graphs, const Case& c, const Tensors& tensors) {
    const bool is_made =
        graphs.Run(allocator_, c.window, tensors.x.tensor, tensors.dy.tensor, tensors.dw);
    if (!is_made) return {};
    std::vector<float> values(static_cast<size_t>(tensors.dw.elements()));
    kernels_.CopyToHost(tensors.dw, values.data());
    return values;
  }

  const std::unique_ptr<CudaContext> context_ = CudaContext::Create(0).value();
  CudaAllocator allocator_{*context_};
  CudaKernels kernels_{*context_, allocator_};
  Cudnn cudnn_{*context_};
  WeightGradientGraphs graphs_{cudnn_};
};

INSTANTIATE_TEST_SUITE_P(Dtypes, WeightGradientGraphTest,
                         testing::Values(DType::kF16, DType::kBF16),
                         [](const auto& dtype) { return std::string(Name(dtype.param)); });

// To what sums in fp32 may be off, which is far less than what a 16-bit number can say.
TEST_P(WeightGradientGraphTest, AgreesWithTheReference) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const Tensors tensors = Make(c);
    const Shape w = tensors.dw.shape();
    const reference::Result expected =
        reference::ConvolutionBackward(tensors.dy, tensors.x, reference::Array(w), c.window).dw;
    const std::vector<float> dw = Gradient(graphs_, c, tensors);
    ASSERT_EQ(static_cast<int64_t>(dw.size()), expected.elements());
    const double roundings = 4 + 2 * std::sqrt(static_cast<double>(tensors.dy.shape.rows()));
    for (size_t i = 0; i < dw.size(); ++i) {
      const double tolerance = roundings * 0x1p-24 * expected.magnitude[i];
      ASSERT_NEAR(dw[i], expected.value[i], tolerance) << i;
    }
  }
}

// Also by plans of another rank's.
TEST_P(WeightGradientGraphTest, RepeatsItsBits) {
  WeightGradientGraphs others(cudnn_);
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const Tensors tensors = Make(c);
    const std::vector<float> first = Gradient(graphs_, c, tensors);
    ASSERT_FALSE(first.empty());
    for (int round = 0; round < 3; ++round) EXPECT_EQ(Gradient(graphs_, c, tensors), first);
    EXPECT_EQ(Gradient(others, c, tensors), first);
  }
}

// Few channels, and odd ones, of which the kernels make copies in fp32
// (kernels_suite_convolution.cc).
TEST_P(WeightGradientGraphTest, ChannelsThatAreNoMultipleOfEightAreLeftToTheCaller) {
  for (const Case& c :
       {Case{"images", 1, 23, 19, 3, 16, {7, 2, 3}}, Case{"odd", 2, 7, 5, 17, 13, {3, 1, 1}},
        Case{"four channels out", 2, 6, 5, 8, 4, {3, 1, 0}}}) {
    SCOPED_TRACE(c.name);
    EXPECT_THAT(Gradient(graphs_, c, Make(c)), testing::IsEmpty());
  }
}

}  // namespace
}  // namespace lockstep::cuda
