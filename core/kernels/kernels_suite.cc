#include "core/kernels/kernels_suite.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/base/half.h"
#include "core/base/philox.h"

namespace lockstep {
namespace {

// Below this, differences are those of exponentials clamped above zero and of subnormals flushed.
constexpr double kFloor = 1e-30;

// Half of the step between fp16's smallest numbers.
constexpr double kHalfFloor = 0x1p-25;

}  // namespace

double SumRoundings(int64_t terms) { return 4 + 2 * std::sqrt(static_cast<double>(terms)); }

double UnitRoundoff(DType dtype) {
  return dtype == DType::kF16 ? 0x1p-11 : dtype == DType::kBF16 ? 0x1p-8 : 0x1p-24;
}

float Rounded(float value, DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return HalfToFloat(FloatToHalf(value));
    case DType::kBF16:
      return BFloat16ToFloat(FloatToBFloat16(value));
    default:
      return value;
  }
}

KernelsSuite::KernelsSuite()
    : allocator_(GetParam().make_allocator()), kernels_(GetParam().make_kernels(*allocator_)) {}

KernelsSuite::Input KernelsSuite::Normal(const Shape& shape, double mean, double stddev,
                                         DType type) {
  std::vector<float> elements(shape.elements());
  Philox(next_stream_++)
      .FillNormal(elements, 0, static_cast<float>(mean), static_cast<float>(stddev));
  return Given(reference::Array(shape, {elements.begin(), elements.end()}), type);
}

KernelsSuite::Input KernelsSuite::Given(const reference::Array& elements, DType type) {
  std::vector<float> rounded(elements.value.begin(), elements.value.end());
  for (float& value : rounded) value = Rounded(value, type);
  Input input;
  input.shape = elements.shape;
  input.value.assign(rounded.begin(), rounded.end());
  input.tensor = Upload(elements.shape, rounded, type);
  return input;
}

Tensor KernelsSuite::Upload(const Shape& shape, const std::vector<float>& elements, DType type) {
  Tensor x = kernels().Empty(shape, type);
  if (type == DType::kF32) {
    kernels().CopyFromHost(elements.data(), x);
    return x;
  }
  std::vector<uint16_t> bits(elements.size());
  for (size_t i = 0; i < bits.size(); ++i) {
    bits[i] = type == DType::kF16 ? FloatToHalf(elements[i]) : FloatToBFloat16(elements[i]);
  }
  kernels().CopyFromHost(bits.data(), x);
  return x;
}

Tensor KernelsSuite::Upload(const std::vector<int32_t>& elements) {
  Tensor x = kernels().Empty({static_cast<int64_t>(elements.size())}, DType::kI32);
  kernels().CopyFromHost(elements.data(), x);
  return x;
}

std::vector<int32_t> KernelsSuite::Integers(int64_t count, int32_t lowest, int32_t highest) {
  const Philox philox(next_stream_++);
  std::vector<int32_t> result(count);
  for (int64_t i = 0; i < count; ++i) {
    result[i] =
        lowest + static_cast<int32_t>(philox.Uniform(i) * static_cast<float>(highest - lowest + 1));
  }
  return result;
}

Tensor KernelsSuite::Output(const Shape& shape, DType type) {
  return Upload(
      shape, std::vector<float>(shape.elements(), std::numeric_limits<float>::quiet_NaN()), type);
}

Tensor KernelsSuite::Integers(const Shape& shape) { return kernels().Empty(shape, DType::kI32); }

std::vector<KernelsSuite::GradientMode> KernelsSuite::GradientModes() const {
  std::vector<GradientMode> modes;
  for (Write write : {Write::kOverwrite, Write::kAccumulate}) {
    modes.push_back({write, DType::kF32});
    if (dtype() != DType::kF32) modes.push_back({write, dtype()});
  }
  return modes;
}

Tensor KernelsSuite::Target(const GradientMode& mode, const Input& start) {
  return mode.write == Write::kOverwrite ? Output(start.shape, mode.dtype)
                                         : Given(start, mode.dtype).tensor;
}

std::vector<float> KernelsSuite::Download(const Tensor& x) {
  std::vector<float> result(x.elements());
  if (x.dtype() == DType::kF32) {
    kernels().CopyToHost(x, result.data());
    return result;
  }
  std::vector<uint16_t> bits(x.elements());
  kernels().CopyToHost(x, bits.data());
  const auto to_float = x.dtype() == DType::kF16 ? HalfToFloat : BFloat16ToFloat;
  std::transform(bits.begin(), bits.end(), result.begin(), to_float);
  return result;
}

std::vector<int32_t> KernelsSuite::DownloadIntegers(const Tensor& x) {
  std::vector<int32_t> result(x.elements());
  kernels().CopyToHost(x, result.data());
  return result;
}

KernelsSuite::Input KernelsSuite::Downloaded(const Tensor& x) {
  const std::vector<float> elements = Download(x);
  Input input;
  input.shape = x.shape();
  input.value.assign(elements.begin(), elements.end());
  input.tensor = x;
  return input;
}

testing::AssertionResult KernelsSuite::Agrees(const reference::Result& expected,
                                              const Tensor& actual, double roundings,
                                              double stored) {
  if (actual.elements() != expected.elements()) {
    return testing::AssertionFailure()
           << actual.shape() << " where " << expected.shape << " was expected";
  }
  const double terms = roundings * UnitRoundoff(DType::kF32) +
                       (dtype() == DType::kF32 ? 0 : stored * UnitRoundoff(dtype()));
  const bool rounded = roundings > 0 && actual.dtype() != DType::kF32;
  const double result = rounded ? UnitRoundoff(actual.dtype()) : 0;
  const double floor = rounded && actual.dtype() == DType::kF16 ? kHalfFloor : kFloor;
  const std::vector<float> elements = Download(actual);
  int64_t wrong = 0, worst = 0;
  double worst_excess = 0;
  for (int64_t i = 0; i < expected.elements(); ++i) {
    const double error = std::abs(elements[i] - expected[i]);
    const double before = terms * expected.magnitude[i];
    const double excess = error / (before + result * (std::abs(expected[i]) + before) + floor);
    if (excess <= 1) continue;  // a NaN goes on
    ++wrong;
    if (!(excess <= worst_excess)) {
      worst = i;
      worst_excess = excess;
    }
  }
  if (wrong == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << wrong << " of " << expected.elements() << " elements of " << Name(actual.dtype())
         << expected.shape << " are wrong; the worst, " << worst << ", is " << elements[worst]
         << " where " << expected[worst] << " was expected, " << worst_excess
         << " times the tolerance off";
}

testing::AssertionResult KernelsSuite::Agrees(reference::Result expected, const GradientMode& mode,
                                              const Input& start, const Tensor& actual,
                                              double roundings, double stored) {
  if (mode.write == Write::kAccumulate) expected.Add(start);
  return Agrees(expected, actual, roundings, stored);
}

testing::AssertionResult KernelsSuite::SameBits(const std::vector<float>& a,
                                                const std::vector<float>& b) {
  if (a.size() != b.size()) {
    return testing::AssertionFailure() << a.size() << " and " << b.size() << " elements";
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i])) continue;
    return testing::AssertionFailure() << "element " << i << " is " << a[i] << " and " << b[i]
                                       << ", " << a[i] - b[i] << " apart";
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult KernelsSuite::CutsDoNotShow(const std::vector<Input>& inputs,
                                                     const ElementKernel& run) {
  const int64_t elements = inputs[0].elements();
  const auto slice = [&](int64_t begin, int64_t end) {
    std::vector<Tensor> parts;
    for (const Input& input : inputs) {
      parts.push_back(
          Upload({end - begin}, {input.value.begin() + begin, input.value.begin() + end}));
    }
    Tensor output = Output({end - begin});
    run(parts, output);
    return Download(output);
  };
  const std::vector<float> whole = slice(0, elements);
  std::vector<float> joined;
  for (int64_t begin = 0, length = 1; begin < elements; begin += length, length += 2) {
    for (float value : slice(begin, std::min(begin + length, elements))) joined.push_back(value);
  }
  return SameBits(whole, joined);
}

}  // namespace lockstep
