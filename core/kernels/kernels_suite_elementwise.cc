// Data movement and arithmetic element by element.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "core/kernels/kernels_suite.h"

namespace lockstep {
namespace {

// Odd ones, and one beyond what a single thread does.
constexpr int64_t kSizes[] = {1, 3, 17, 63, 65, 100, 50001};

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST_P(KernelsSuite, CopiesBetweenHostAndDevice) {
  for (int64_t n : kSizes) {
    std::vector<double> from(n);
    for (int64_t i = 0; i < n; ++i) from[i] = 1.0 / static_cast<double>(i + 1);
    Tensor x = kernels().Empty({n}, DType::kF64), y = kernels().EmptyLike(x);
    kernels().CopyFromHost(from.data(), x);
    kernels().Copy(x, y);
    std::vector<double> to(n);
    kernels().CopyToHost(y, to.data());
    EXPECT_EQ(from, to);
  }
}

// From where uploads go by themselves, and from any host memory. The second upload reads memory
// that the first one has used.
TEST_P(KernelsSuite, UploadsBesideItsKernels) {
  CpuAllocator elsewhere;
  for (Allocator* const allocator :
       {&kernels().host_allocator(), static_cast<Allocator*>(&elsewhere)}) {
    for (const int32_t n : {1, 65, 300001}) {
      for (int attempt = 0; attempt < 4; ++attempt) {
        std::vector<int32_t> from(n), to(n);
        std::iota(from.begin(), from.end(), attempt);
        Tensor host = Tensor::Empty(*allocator, {n}, DType::kI32, MemoryClass::kWorkspace);
        std::copy(from.begin(), from.end(), host.span<int32_t>().begin());
        const Tensor x = kernels().Upload(host), y = kernels().EmptyLike(x);
        EXPECT_EQ(x.device(), kernels().device());
        EXPECT_EQ(x.storage().memory_class(),
                  host.same_storage(x) ? MemoryClass::kWorkspace : MemoryClass::kActivations);
        host = Tensor();
        kernels().Copy(x, y);
        kernels().CopyToHost(y, to.data());
        EXPECT_EQ(from, to);
      }
    }
  }
}

TEST_P(KernelsSuite, CopiesBytesOfAnyCount) {
  for (int64_t n : {1, 3, 65, 300001}) {
    std::vector<uint8_t> from(n), to(n + 1, 77);
    for (int64_t i = 0; i < n; ++i) from[i] = static_cast<uint8_t>(i % 251);
    Tensor x = kernels().Empty({n}, DType::kU8), y = kernels().EmptyLike(x);
    kernels().CopyFromHost(from.data(), x);
    kernels().Copy(x, y);
    kernels().CopyToHost(y, to.data());
    EXPECT_EQ(to.back(), 77);
    to.pop_back();
    EXPECT_EQ(from, to);
  }
}

TEST_P(KernelsSuite, FillsAndCasts) {
  for (int64_t n : kSizes) {
    Tensor filled = Output({n});
    kernels().Fill(filled, 0.1f);
    EXPECT_EQ(Download(filled), std::vector<float>(n, Rounded(0.1f, dtype())));

    Tensor x = Output({n}, DType::kF32), wide = kernels().Empty({n}, DType::kF64);
    Tensor back = Output({n}, DType::kF32), same = Output({n}, DType::kF32);
    kernels().Fill(x, 0.1f);
    kernels().Cast(x, wide);
    std::vector<double> doubles(n);
    kernels().CopyToHost(wide, doubles.data());
    EXPECT_EQ(doubles, std::vector<double>(n, static_cast<double>(0.1f)));
    doubles.back() = 0.1;  // to be rounded
    kernels().CopyFromHost(doubles.data(), wide);
    kernels().Cast(wide, back);
    kernels().Cast(x, same);
    EXPECT_EQ(Download(back), std::vector<float>(n, 0.1f));
    EXPECT_EQ(Download(same), std::vector<float>(n, 0.1f));
  }
}

TEST_P(KernelsSuite, CastsToAndFromTheComputeDType) {
  for (DType other : {DType::kF32, DType::kF16, DType::kBF16}) {
    SCOPED_TRACE(Name(other));
    for (int64_t n : kSizes) {
      const Input x = Normal({n}), from = Normal({n}, 0, 1, other);
      Tensor to = Output({n}, other), y = Output({n});
      kernels().Cast(x.tensor, to);
      EXPECT_TRUE(SameBits(to, Given(x, other).tensor));
      kernels().Cast(from.tensor, y);
      EXPECT_TRUE(SameBits(y, Given(from).tensor));
    }
  }
}

// Ties go to even, and what is beyond the range becomes infinite: 65520 lies half way between
// fp16's last number and the next power of two, 0x1.ffp127 does so for bf16. NaN stays NaN.
TEST_P(KernelsSuite, CastsRoundToTheNearest) {
  const float elements[] = {
      0.0f,         -0.0f,           1 + 0x1p-11f,    1 + 0x3p-11f, 1 + 0x1p-8f, 1 + 0x3p-8f,
      -1 - 0x1p-8f, -1 - 0x1.01p-8f, 65519.996f,      65520,        -65520,      0x1p-24f,
      0x1p-25f,     0x1.8p-25f,      0x1.fefffep127f, 0x1.ffp127f,  kInfinity,   -kInfinity};
  const auto expect = [&](DType to, const std::vector<float>& expected) {
    SCOPED_TRACE(Name(to));
    const int64_t n = static_cast<int64_t>(expected.size());
    Tensor x = Upload({n}, {elements, elements + n}, DType::kF32), y = Output({n}, to);
    kernels().Cast(x, y);
    EXPECT_TRUE(SameBits(Download(y), expected));
    kernels().Fill(x, kNaN);
    kernels().Cast(x, y);
    EXPECT_TRUE(std::isnan(Download(y)[n - 1]));
  };
  expect(DType::kF16, {0.0f, -0.0f, 1, 1 + 0x1p-9f, 1 + 0x1p-8f, 1 + 0x3p-8f, -1 - 0x1p-8f,
                       -1 - 0x1p-8f, 65504, kInfinity, -kInfinity, 0x1p-24f, 0, 0x1p-24f, kInfinity,
                       kInfinity, kInfinity, -kInfinity});
  expect(DType::kBF16,
         {0.0f, -0.0f, 1, 1, 1, 1 + 0x1p-6f, -1, -1 - 0x1p-7f, 65536, 65536, -65536, 0x1p-24f,
          0x1p-25f, 0x1.8p-25f, 0x1.fep127f, kInfinity, kInfinity, -kInfinity});
}

TEST_P(KernelsSuite, ResultsBeyondTheRangeAreInfinite) {
  const float largest = dtype() == DType::kF16    ? 65504
                        : dtype() == DType::kBF16 ? 0x1.fep127f
                                                  : std::numeric_limits<float>::max();
  const Tensor x = Upload({4}, {largest, -largest, kNaN, 1});
  Tensor y = Output({4});
  kernels().Add(x, x, y);
  const std::vector<float> sums = Download(y);
  EXPECT_EQ(sums[0], kInfinity);
  EXPECT_EQ(sums[1], -kInfinity);
  EXPECT_TRUE(std::isnan(sums[2]));
  EXPECT_EQ(sums[3], 2);
  const Tensor finite = Upload({2}, {largest, 1});
  EXPECT_EQ(kernels().MaxMagnitude(finite), largest);
  kernels().Scale(finite, -2, finite);
  EXPECT_EQ(kernels().MaxMagnitude(finite), kInfinity);
}

// As gradients of 16 bits are added to a total of fp32.
TEST_P(KernelsSuite, OperandsHaveDTypesOfTheirOwn) {
  constexpr int64_t kCount = 5001;
  for (DType of_a : {DType::kF32, dtype()}) {
    for (DType of_b : {DType::kF32, dtype()}) {
      for (DType of_y : {DType::kF32, dtype()}) {
        SCOPED_TRACE(testing::Message() << Name(of_a) << Name(of_b) << Name(of_y));
        const Input a = Normal({kCount}, 0, 1, of_a), b = Normal({kCount}, 3, 1, of_b);
        Tensor y = Output({kCount}, of_y);
        kernels().Add(a.tensor, b.tensor, y);
        EXPECT_TRUE(Agrees(reference::Add(a, b), y, 1));
        kernels().Multiply(a.tensor, b.tensor, y);
        EXPECT_TRUE(Agrees(reference::Multiply(a, b), y, 1));
        kernels().Scale(a.tensor, 0.3f, y);
        EXPECT_TRUE(Agrees(reference::Scale(a, 0.3f), y, 1));
        const Input before = Downloaded(y);
        kernels().AddScaled(b.tensor, -1.7f, y);
        EXPECT_TRUE(Agrees(reference::AddScaled(b, -1.7f, before), y, 2));
      }
      const Input a = Normal({kCount}, 0, 1, of_a), b = Normal({kCount}, 3, 1, of_b);
      kernels().Add(a.tensor, b.tensor, b.tensor);
      EXPECT_TRUE(Agrees(reference::Add(a, b), b.tensor, 1));
    }
  }
}

// One operation is correctly rounded: one rounding.
TEST_P(KernelsSuite, AddsMultipliesAndScales) {
  for (int64_t n : kSizes) {
    const Input a = Normal({n}), b = Normal({n}, 3);
    Tensor y = Output({n});
    kernels().Add(a.tensor, b.tensor, y);
    EXPECT_TRUE(Agrees(reference::Add(a, b), y, 1));
    kernels().Multiply(a.tensor, b.tensor, y);
    EXPECT_TRUE(Agrees(reference::Multiply(a, b), y, 1));
    kernels().Scale(a.tensor, -1.7f, y);
    EXPECT_TRUE(Agrees(reference::Scale(a, -1.7f), y, 1));
    Tensor sum = Given(b).tensor;
    kernels().AddScaled(a.tensor, -1.7f, sum);
    EXPECT_TRUE(Agrees(reference::AddScaled(a, -1.7f, b), sum, 2));
  }
}

TEST_P(KernelsSuite, ElementwiseInPlace) {
  for (int64_t n : {65, 50001}) {
    const Input a = Normal({n}), b = Normal({n});
    const auto expect = [&](const reference::Result& expected, double roundings, auto&& run) {
      Tensor x = Given(a).tensor;
      run(x);
      EXPECT_TRUE(Agrees(expected, x, roundings));
    };
    Kernels& k = kernels();
    expect(reference::Add(a, b), 1, [&](const Tensor& x) { k.Add(x, b.tensor, x); });
    expect(reference::Add(b, a), 1, [&](const Tensor& x) { k.Add(b.tensor, x, x); });
    expect(reference::Add(a, a), 1, [&](const Tensor& x) { k.Add(x, x, x); });
    expect(reference::Multiply(a, b), 1, [&](const Tensor& x) { k.Multiply(x, b.tensor, x); });
    expect(reference::Multiply(b, a), 1, [&](const Tensor& x) { k.Multiply(b.tensor, x, x); });
    expect(reference::Scale(a, 0.3f), 1, [&](const Tensor& x) { k.Scale(x, 0.3f, x); });
    expect(reference::Relu(a), 0, [&](const Tensor& x) { k.Relu(x, x); });
    expect(reference::ReluBackward(a, b), 0,
           [&](const Tensor& x) { k.ReluBackward(x, b.tensor, x); });
    expect(reference::ReluBackward(b, a), 0,
           [&](const Tensor& x) { k.ReluBackward(b.tensor, x, x); });
    expect(reference::Gelu(a), 8, [&](const Tensor& x) { k.Gelu(x, x); });
    expect(reference::GeluBackward(a, b), 8,
           [&](const Tensor& x) { k.GeluBackward(x, b.tensor, x); });
    expect(reference::GeluBackward(b, a), 8,
           [&](const Tensor& x) { k.GeluBackward(b.tensor, x, x); });
    const Dropout dropout{.probability = 0.3f, .key = 5, .counter = 6};
    expect(reference::ApplyDropout(dropout, 9, a), 2,
           [&](const Tensor& x) { k.ApplyDropout(dropout, 9, x, x); });
  }
}

TEST_P(KernelsSuite, Relu) {
  for (int64_t n : kSizes) {
    const Input x = Normal({n}), dy = Normal({n});
    Tensor y = Output({n}), dx = Output({n});
    kernels().Relu(x.tensor, y);
    kernels().ReluBackward(y, dy.tensor, dx);
    EXPECT_TRUE(Agrees(reference::Relu(x), y, 0));
    EXPECT_TRUE(Agrees(reference::ReluBackward(x, dy), dx, 0));
  }
  // Nothing passes where the output is zero, of either sign.
  Tensor y = Upload({2}, {0.0f, -0.0f}), dy = Upload({2}, {5, 5}), dx = Output({2});
  kernels().ReluBackward(y, dy, dx);
  EXPECT_EQ(Download(dx), (std::vector<float>{0, 0}));
}

// A run that has diverged must not look healthy: NaN passes.
TEST_P(KernelsSuite, ActivationsPassNaN) {
  std::vector<float> elements(40, -1.0f);
  elements[3] = elements[37] = kNaN;
  Tensor x = Upload({40}, elements), y = Output({40});
  kernels().Relu(x, y);
  EXPECT_TRUE(std::isnan(Download(y)[3]) && std::isnan(Download(y)[37]));
  kernels().Gelu(x, y);
  EXPECT_TRUE(std::isnan(Download(y)[3]) && std::isnan(Download(y)[37]));
}

// Eight roundings: the argument, the exponential's 2 ulp, the quotient, the products.
TEST_P(KernelsSuite, Gelu) {
  for (int64_t n : kSizes) {
    const Input x = Normal({n}, 0, 3), dy = Normal({n});
    Tensor y = Output({n}), dx = Output({n});
    kernels().Gelu(x.tensor, y);
    EXPECT_TRUE(Agrees(reference::Gelu(x), y, 8));
    kernels().GeluBackward(x.tensor, dy.tensor, dx);
    EXPECT_TRUE(Agrees(reference::GeluBackward(x, dy), dx, 8));
  }
}

// As Gelu; and one more product.
TEST_P(KernelsSuite, SwiGlu) {
  for (const Shape& shape : {Shape{1, 1}, {3, 17}, {65, 100}, {7, 2100}, {300, 63}}) {
    const Input x = Normal(shape.With(1, 2 * shape[1]), 0, 3), dy = Normal(shape);
    Tensor y = Output(shape), dx = Output(x.shape);
    kernels().SwiGlu(x.tensor, y);
    EXPECT_TRUE(Agrees(reference::SwiGlu(x), y, 9));
    kernels().SwiGluBackward(x.tensor, dy.tensor, dx);
    EXPECT_TRUE(Agrees(reference::SwiGluBackward(x, dy), dx, 9));
  }
}

TEST_P(KernelsSuite, SwiGluFarOut) {
  for (const float gate : {-0x1p15f, -1000.0f, -100.0f, 0.0f, 100.0f, 0x1p15f}) {
    const Tensor x = Upload({1, 2}, {gate, 1}), one = Upload({1, 1}, {1}), y = Output({1, 1}),
                 dx = Output({1, 2});
    kernels().SwiGlu(x, y);
    kernels().SwiGluBackward(x, one, dx);
    const double value = std::max(gate, 0.0f), slope = gate > 0 ? 1 : gate < 0 ? 0 : 0.5;
    EXPECT_NEAR(Download(y)[0], value, 1e-25) << gate;
    EXPECT_NEAR(Download(dx)[0], slope, 3e-5) << gate;
    EXPECT_NEAR(Download(dx)[1], value, 1e-25) << gate;
  }
}

TEST_P(KernelsSuite, GeluFarOut) {
  const std::vector<float> at = {-0x1p15f, -1000, -100, -30,     -12,  12,
                                 30,       100,   1000, 0x1p15f, 0.0f, -0.0f};
  const int64_t n = static_cast<int64_t>(at.size());
  Tensor x = Upload({n}, at), ones = Output({n}), y = Output({n}), dx = Output({n});
  kernels().Fill(ones, 1);
  kernels().Gelu(x, y);
  kernels().GeluBackward(x, ones, dx);
  const std::vector<float> value = Download(y), slope = Download(dx);
  for (int64_t i = 0; i < n; ++i) {
    EXPECT_NEAR(value[i], at[i] > 0 ? at[i] : 0, 1e-25) << at[i];
    EXPECT_NEAR(slope[i], at[i] > 0 ? 1 : at[i] < 0 ? 0 : 0.5, 3e-5) << at[i];
  }
}

TEST_P(KernelsSuite, Dropout) {
  const Dropout dropout{.probability = 0.3f, .key = 0x123456789abcdef, .counter = 7ull << 32 | 3};
  for (int64_t n : kSizes) {
    const Input x = Normal({n}, 2);
    for (int64_t first : {int64_t{0}, int64_t{5}, (int64_t{1} << 33) + 2}) {
      Tensor y = Output({n});
      kernels().ApplyDropout(dropout, first, x.tensor, y);
      EXPECT_TRUE(Agrees(reference::ApplyDropout(dropout, first, x), y, 2));
    }
    Tensor y = Output({n});
    kernels().ApplyDropout({.probability = 0, .key = 1, .counter = 2}, 0, x.tensor, y);
    EXPECT_TRUE(SameBits(y, x.tensor));
  }
}

TEST_P(KernelsSuite, DropoutDropsAsManyAsItSays) {
  constexpr int64_t kCount = 100000;
  Tensor x = Output({kCount}), y = Output({kCount}), exact = Output({kCount}, DType::kF32);
  kernels().Fill(x, 1);
  std::vector<float> before;
  for (uint64_t counter : {0, 1}) {
    for (float p : {0.1f, 0.5f}) {
      kernels().ApplyDropout({.probability = p, .key = 3, .counter = counter}, 0, x, y);
      const std::vector<float> kept = Download(y);
      const double zeros = static_cast<double>(std::count(kept.begin(), kept.end(), 0.0f));
      // Five standard deviations of the binomial distribution.
      EXPECT_NEAR(zeros / kCount, p, 5 * std::sqrt(p * (1 - p) / kCount));
      kernels().Cast(y, exact);
      EXPECT_NEAR(kernels().Sum(exact).Total() / kCount, 1,
                  5 * std::sqrt(p / (1 - p) / kCount) + UnitRoundoff(dtype()));
      EXPECT_NE(kept, before);
      before = kept;
    }
  }
}

TEST_P(KernelsSuite, DropoutOfASliceIsASliceOfDropout) {
  const Dropout dropout{.probability = 0.4f, .key = 11, .counter = 12};
  const Input x = Normal({2300});
  int64_t first = 100;
  EXPECT_TRUE(CutsDoNotShow({x}, [&](const std::vector<Tensor>& in, const Tensor& y) {
    if (y.elements() == x.elements()) {
      kernels().ApplyDropout(dropout, 100, in[0], y);
      return;
    }
    kernels().ApplyDropout(dropout, first, in[0], y);
    first += y.elements();
  }));
}

TEST_P(KernelsSuite, DropoutCountsElementsBeyond32Bits) {
  const Dropout dropout{.probability = 0.4f, .key = 11, .counter = 12};
  const Input x = Normal({2300});
  for (const int64_t first : {100, 103}) {
    const Tensor near = Output(x.shape), far = Output(x.shape);
    kernels().ApplyDropout(dropout, first, x.tensor, near);
    kernels().ApplyDropout(dropout, first + (int64_t{1} << 32), x.tensor, far);
    EXPECT_NE(Download(near), Download(far)) << first;
  }
}

TEST_P(KernelsSuite, CutsOfElementwiseKernelsDoNotShow) {
  const std::vector<Input> inputs = {Normal({2000}, 0, 4), Normal({2000})};
  using In = const std::vector<Tensor>&;
  Kernels& k = kernels();
  EXPECT_TRUE(CutsDoNotShow(inputs, [&](In in, const Tensor& y) { k.Gelu(in[0], y); }));
  EXPECT_TRUE(
      CutsDoNotShow(inputs, [&](In in, const Tensor& y) { k.GeluBackward(in[0], in[1], y); }));
  EXPECT_TRUE(CutsDoNotShow(inputs, [&](In in, const Tensor& y) {
    k.Copy(in[0], y);
    k.AddScaled(in[1], 0.3f, y);
  }));
  EXPECT_TRUE(
      CutsDoNotShow({Given(reference::Array({7}, {-0.0, 0.0, 1, -1, kInfinity, -kInfinity, -0.0}))},
                    [&](In in, const Tensor& y) { k.Relu(in[0], y); }));
}

}  // namespace
}  // namespace lockstep
