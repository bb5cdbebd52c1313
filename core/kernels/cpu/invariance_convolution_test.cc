// What a convolution, a batch normalisation or a pooling gives does not depend on the number of
// threads, and what it gives for a sample does not depend on the number of samples in the call
// (docs/numerics.md).

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/parallel.h"
#include "core/base/philox.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr int kThreads[] = {1, 2, 3, 5};

struct Layer {
  std::string name;
  int64_t height, width, in, out;
  Window window;
  std::vector<int64_t> batches = {1, 5, 9, 17};
};

const Layer kLayers[] = {
    {"3x3, 64 channels", 9, 7, 64, 64, {3, 1, 1}},
    {"3x3, 64 channels, outputs 16x16", 16, 16, 64, 80, {3, 1, 1}, {1, 9, 37}},
    {"3x3, 128 channels, outputs 4x4", 4, 4, 128, 144, {3, 1, 1}, {1, 5, 33}},
    {"3x3, 256 channels, outputs 2x2", 2, 2, 256, 256, {3, 1, 1}, {1, 9, 70}},
    {"3x3, odd channels", 7, 5, 17, 13, {3, 1, 1}},
    {"3x3, stride 2", 9, 8, 64, 128, {3, 2, 1}},
    {"3x3, stride 2, outputs 2x2", 4, 3, 32, 64, {3, 2, 1}},
    {"1x1", 5, 7, 64, 32, {1, 1, 0}},
    {"1x1, stride 2", 8, 6, 16, 32, {1, 2, 0}},
    {"7x7, stride 2", 23, 19, 3, 16, {7, 2, 3}},
};

class InvarianceTest : public testing::TestWithParam<DType> {
 protected:
  ~InvarianceTest() override { SetThreads(threads_before_); }

  // The values of stream `stream`, of magnitudes that differ, so that another order of a sum shows.
  Tensor Values(const Shape& shape, uint64_t stream) {
    Tensor values = kernels_.Empty(shape), rounded = kernels_.Empty(shape, GetParam());
    Philox(PhiloxKey(1, "test", "invariance"))
        .FillNormal({values.data<float>(), static_cast<size_t>(values.elements())}, 0, 0, 1,
                    stream);
    for (int64_t i = 0; i < values.elements(); ++i) {
      values.data<float>()[i] *= static_cast<float>(1 + i * 7 % 5);
    }
    kernels_.Cast(values, rounded);
    return rounded;
  }
  Tensor Output(const Shape& shape) { return kernels_.Empty(shape, GetParam()); }
  Tensor Statistics(int64_t channels) { return kernels_.Empty({channels}); }
  static Tensor Samples(const Tensor& x, int64_t count) {
    Shape shape = x.shape();
    std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
    dims[0] = count;
    const Shape first(dims);
    Tensor part = Tensor::Empty(x.allocator(), first, x.dtype(), MemoryClass::kActivations);
    std::memcpy(part.raw(), x.raw(), part.bytes());
    return part;
  }

  // Calls compute() on any number of threads, with other kernels, that is other compiled
  // primitives, each time. Its results must have the same bits; returns them.
  using Compute = std::function<std::vector<Tensor>(Kernels& kernels)>;
  std::vector<Tensor> OnAnyThreads(const Compute& compute) {
    std::vector<Tensor> first;
    for (const int threads : kThreads) {
      SetThreads(threads);
      CpuKernels kernels(allocator_);
      const std::vector<Tensor> results = compute(kernels);
      if (first.empty()) first = results;
      for (size_t i = 0; i < results.size(); ++i) {
        EXPECT_EQ(std::memcmp(first[i].raw(), results[i].raw(), results[i].bytes()), 0)
            << "result " << i << " on " << threads << " threads";
      }
    }
    return first;
  }

  // Expects `some` to be the beginning of `more`: the samples that both calls had.
  static void ExpectBeginning(const Tensor& some, const Tensor& more) {
    ASSERT_LE(some.bytes(), more.bytes());
    EXPECT_EQ(std::memcmp(some.raw(), more.raw(), some.bytes()), 0);
  }

  const int threads_before_ = MaxThreads();
  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
};

INSTANTIATE_TEST_SUITE_P(Cpu, InvarianceTest,
                         testing::Values(DType::kF32, DType::kF16, DType::kBF16),
                         [](const auto& type) { return std::string(Name(type.param)); });

TEST_P(InvarianceTest, ConvolutionAndItsInputGradient) {
  for (const Layer& layer : kLayers) {
    SCOPED_TRACE(layer.name);
    const Window& window = layer.window;
    const int64_t most = layer.batches.back();
    const Tensor x = Values({most, layer.height, layer.width, layer.in}, 0);
    const Tensor w = Values({layer.out, window.kernel, window.kernel, layer.in}, 1);
    const Tensor bias = Values({layer.out}, 2);
    const Tensor dy =
        Values({most, window.Output(layer.height), window.Output(layer.width), layer.out}, 3);
    std::vector<Tensor> all;
    for (auto batch = layer.batches.rbegin(); batch != layer.batches.rend(); ++batch) {
      SCOPED_TRACE(*batch);
      const Tensor some_x = Samples(x, *batch), some_dy = Samples(dy, *batch);
      const std::vector<Tensor> results = OnAnyThreads([&](Kernels& kernels) {
        Tensor y = Output(some_dy.shape()), plain = Output(some_dy.shape());
        Tensor dx = Output(some_x.shape());
        kernels.Convolution(some_x, w, bias, window, y);
        kernels.Convolution(some_x, w, Tensor(), window, plain);
        kernels.ConvolutionBackwardInput(some_dy, w, window, dx);
        return std::vector<Tensor>{y, plain, dx};
      });
      if (all.empty()) all = results;
      for (size_t i = 0; i < results.size(); ++i) ExpectBeginning(results[i], all[i]);
    }
  }
}

TEST_P(InvarianceTest, WeightGradient) {
  for (const Layer& layer : kLayers) {
    SCOPED_TRACE(layer.name);
    const Window& window = layer.window;
    for (const int64_t batch : layer.batches) {
      SCOPED_TRACE(batch);
      const Tensor x = Values({batch, layer.height, layer.width, layer.in}, 0);
      const Tensor dy =
          Values({batch, window.Output(layer.height), window.Output(layer.width), layer.out}, 1);
      const Shape w_shape = {layer.out, window.kernel, window.kernel, layer.in};
      const std::vector<Tensor> results = OnAnyThreads([&](Kernels& kernels) {
        const Tensor dw = kernels.Empty(w_shape), dbias = kernels.Empty({layer.out});
        const Tensor rounded = Output(w_shape), rounded_bias = Output({layer.out});
        const Tensor twice = kernels.Empty(w_shape), alone = kernels.Empty(w_shape);
        kernels.ConvolutionBackwardWeight(dy, x, window, Write::kOverwrite, dw, dbias);
        kernels.ConvolutionBackwardWeight(dy, x, window, Write::kOverwrite, alone, Tensor());
        kernels.ConvolutionBackwardWeight(dy, x, window, Write::kOverwrite, rounded, rounded_bias);
        kernels.ConvolutionBackwardWeight(dy, x, window, Write::kAccumulate, rounded, rounded_bias);
        kernels.Fill(twice, 1);
        kernels.ConvolutionBackwardWeight(dy, x, window, Write::kAccumulate, twice, Tensor());
        return std::vector<Tensor>{dw, dbias, rounded, rounded_bias, twice, alone};
      });
      // A call's sum is complete before it is added to what there is.
      const Tensor &dw = results[0], &twice = results[4], &alone = results[5];
      EXPECT_EQ(std::memcmp(dw.raw(), alone.raw(), dw.bytes()), 0);
      for (int64_t i = 0; i < dw.elements(); ++i) {
        ASSERT_EQ(twice.data<float>()[i], 1 + dw.data<float>()[i]) << i;
      }
    }
  }
}

TEST_P(InvarianceTest, BatchNorm) {
  constexpr float kEpsilon = 1e-5f;
  for (const Shape& shape : {Shape{1, 3, 5, 64}, Shape{5, 8, 8, 64}, Shape{9, 16, 17, 20},
                             Shape{17, 2, 2, 512}, Shape{3, 1, 1, 7}}) {
    const int64_t channels = shape[3];
    const Tensor x = Values(shape, 0), dy = Values(shape, 1), residual = Values(shape, 2);
    const Tensor scale = Values({channels}, 3), shift = Values({channels}, 4);
    OnAnyThreads([&](Kernels& kernels) {
      std::vector<Tensor> results;
      for (const bool fused : {false, true}) {
        const Tensor y = Output(shape), mean = Statistics(channels);
        const Tensor variance = Statistics(channels), dx = Output(shape);
        const Tensor dresidual = fused ? Output(shape) : Tensor();
        const Tensor dscale = Statistics(channels), dshift = Statistics(channels);
        const Tensor kept =
            kernels.BatchNorm(x, scale, shift, fused ? residual : Tensor(), kEpsilon,
                              fused ? Activation::kRelu : Activation::kNone, y, mean, variance);
        kernels.BatchNormBackward(x, scale, mean, variance, kept, kEpsilon, fused ? y : Tensor(),
                                  dy, dx, dresidual, Write::kOverwrite, dscale, dshift);
        kernels.BatchNormBackward(x, scale, mean, variance, kept, kEpsilon, fused ? y : Tensor(),
                                  dy, dx, dresidual, Write::kAccumulate, dscale, dshift);
        const Tensor sums = kernels.Empty({3, channels});
        const Tensor running_mean = Statistics(channels), running_variance = Statistics(channels);
        kernels.Fill(running_mean, 0);
        kernels.Fill(running_variance, 1);
        kernels.AddStatistics(mean, variance, 0.3f, Write::kOverwrite, sums);
        kernels.AddStatistics(mean, variance, 0.7f, Write::kAccumulate, sums);
        kernels.UpdateRunningStatistics(sums, 1, shape.elements() / channels, 0.1f, running_mean,
                                        running_variance);
        const Tensor inference = Output(shape);
        kernels.BatchNormInference(x, scale, shift, Tensor(), running_mean, running_variance,
                                   kEpsilon, Activation::kRelu, inference);
        results.insert(results.end(), {y, mean, variance, dx, dscale, dshift, sums, running_mean,
                                       running_variance, inference});
        if (fused) results.push_back(dresidual);
      }
      return results;
    });
  }
}

TEST_P(InvarianceTest, Pooling) {
  constexpr Window kWindow = {3, 2, 1};
  const int64_t height = 9, width = 12, channels = 20, most = 17;
  const int64_t out_height = kWindow.Output(height), out_width = kWindow.Output(width);
  const Tensor x = Values({most, height, width, channels}, 0);
  const Tensor dy = Values({most, out_height, out_width, channels}, 1);
  const Tensor dmean = Values({most, channels}, 2);
  const Tensor doubled = Values({most, 2 * height, 2 * width, channels}, 3);
  std::vector<Tensor> all;
  for (const int64_t batch : {most, int64_t{9}, int64_t{5}, int64_t{1}}) {
    SCOPED_TRACE(batch);
    const Tensor some_x = Samples(x, batch), some_dy = Samples(dy, batch);
    const Tensor some_dmean = Samples(dmean, batch), some_doubled = Samples(doubled, batch);
    const std::vector<Tensor> results = OnAnyThreads([&](Kernels& kernels) {
      const Tensor y = Output(some_dy.shape()), dx = Output(some_x.shape());
      const Tensor mean = Output(some_dmean.shape()), dx_of_mean = Output(some_x.shape());
      const Tensor up = Output(some_doubled.shape()), dx_of_up = Output(some_x.shape());
      kernels.MaxPool(some_x, kWindow, y);
      kernels.MaxPoolBackward(some_x, kWindow, y, some_dy, dx);
      kernels.GlobalAveragePool(some_x, mean);
      kernels.GlobalAveragePoolBackward(some_dmean, dx_of_mean);
      kernels.Upsample(some_x, up);
      kernels.UpsampleBackward(some_doubled, dx_of_up);
      return std::vector<Tensor>{y, dx, mean, dx_of_mean, up, dx_of_up};
    });
    if (all.empty()) all = results;
    for (size_t i = 0; i < results.size(); ++i) ExpectBeginning(results[i], all[i]);
  }
}

}  // namespace
}  // namespace lockstep
