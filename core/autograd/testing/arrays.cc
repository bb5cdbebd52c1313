#include "core/autograd/testing/arrays.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/base/philox.h"

namespace lockstep {

reference::Array RandomArray(const Shape& shape, uint64_t stream, float stddev) {
  std::vector<float> elements(shape.elements());
  Philox(stream).FillNormal(elements, 0, 0.0f, stddev);
  return reference::Array(shape, {elements.begin(), elements.end()});
}

std::vector<int32_t> RandomIntegers(int64_t count, int32_t below, uint64_t stream) {
  std::vector<int32_t> elements(count);
  for (int64_t i = 0; i < count; ++i) {
    elements[i] = static_cast<int32_t>(Philox(stream).Uniform(i) * static_cast<float>(below));
  }
  return elements;
}

Tensor Upload(Kernels& kernels, const reference::Array& x) {
  const std::vector<float> rounded(x.value.begin(), x.value.end());
  Tensor tensor = kernels.Empty(x.shape);
  kernels.CopyFromHost(rounded.data(), tensor);
  return tensor;
}

Tensor Upload(Kernels& kernels, const Shape& shape, const std::vector<int32_t>& x) {
  Tensor tensor = kernels.Empty(shape, DType::kI32);
  kernels.CopyFromHost(x.data(), tensor);
  return tensor;
}

reference::Array Download(Kernels& kernels, const Tensor& x) {
  std::vector<float> elements(x.elements());
  kernels.CopyToHost(x, elements.data());
  return reference::Array(x.shape(), {elements.begin(), elements.end()});
}

testing::AssertionResult IsNear(const reference::Array& expected, const reference::Array& actual,
                                double tolerance) {
  if (actual.shape != expected.shape || actual.elements() != expected.elements()) {
    return testing::AssertionFailure()
           << actual.shape << " where " << expected.shape << " was expected";
  }
  double largest = 0, worst_error = 0;
  int64_t worst = -1;
  for (int64_t i = 0; i < expected.elements(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    const double error = std::abs(actual[i] - expected[i]);
    if (error <= worst_error) continue;  // a NaN goes on, and stays
    worst = i;
    worst_error = error;
    if (std::isnan(error)) break;
  }
  if (worst < 0 || worst_error <= tolerance * largest) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "element " << worst << " of " << expected.shape << " is " << actual[worst] << " where "
         << expected[worst] << " was expected, " << worst_error / largest
         << " of the largest, which is " << largest;
}

testing::AssertionResult SameBits(const reference::Array& a, const reference::Array& b) {
  if (a.shape != b.shape || a.elements() != b.elements()) {
    return testing::AssertionFailure() << a.shape << " and " << b.shape;
  }
  for (int64_t i = 0; i < a.elements(); ++i) {
    if (std::bit_cast<uint64_t>(a[i]) == std::bit_cast<uint64_t>(b[i])) continue;
    return testing::AssertionFailure()
           << "element " << i << " of " << a.shape << " is " << a[i] << " and " << b[i];
  }
  return testing::AssertionSuccess();
}

}  // namespace lockstep
