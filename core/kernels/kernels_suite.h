// What every implementation of Kernels must pass: each kernel against core/kernels/reference.h, on
// random inputs whose shapes are asymmetric (a transposition shows), odd (a vector's tail shows)
// and large enough for the parallel and tiled paths. A backend runs the suite by linking it and
// naming itself:
//
//   INSTANTIATE_TEST_SUITE_P(Cpu, KernelsSuite, testing::Values(KernelsBackend{...}),
//                            testing::PrintToStringParamName());
//
// once for each compute dtype (core/kernels/kernels.h), and KernelsSuite16 for those of 16 bits.
//
// Tolerances. An element may differ from the reference by `roundings` unit roundoffs (2^-24) of the
// magnitude that the reference carries (reference.h), where `roundings` counts the operations
// behind it. The rounding errors of a sum of n terms wander like a random walk, so SumRoundings
// grows with the root of n (Higham and Mary, "A New Approach to Probabilistic Rounding Error
// Analysis", 2019). A term that is missing, doubled or has the wrong sign is off by some 1/n of the
// magnitude: with n = 1000 terms ten times the tolerance or more.
//
// An input of 16 bits is rounded before the reference sees it, so its rounding does not count. A
// result of 16 bits may be off by one more rounding, that of storing it: the unit roundoff of its
// dtype (2^-11 for fp16, 2^-8 for bf16, whose significands have 11 and 8 bits) of its value, or
// half of fp16's smallest step. Zero roundings mean that elements are moved: they are exact in any
// dtype. Where an intermediate result is kept in the compute dtype, a test says how many roundings
// of it (`stored`) may show, of the magnitude.

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "core/kernels/kernels.h"
#include "core/kernels/reference.h"
#include "gtest/gtest.h"

namespace lockstep {

struct KernelsBackend {
  std::string name;  // letters and digits
  std::function<std::unique_ptr<Allocator>()> make_allocator;
  std::function<std::unique_ptr<Kernels>(Allocator&)> make_kernels;
  DType dtype = DType::kF32;  // the compute dtype
  // Whether batch normalisation is a library's: its result is stored before the residual is added,
  // and the variance is as exact as 1 / sqrt(variance + epsilon) gives it.
  bool batch_norm_of_library = false;

  friend void PrintTo(const KernelsBackend& backend, std::ostream* out) { *out << backend.name; }
};

// Roundings that a sum of `terms` terms may show.
double SumRoundings(int64_t terms);

// The most that rounding to a floating dtype changes a value, relative to it.
double UnitRoundoff(DType dtype);
// The nearest value of fp32, fp16 or bf16.
float Rounded(float value, DType dtype);

class KernelsSuite : public testing::TestWithParam<KernelsBackend> {
 protected:
  // The same elements on the host, for the reference, and on the device. Undefined by default.
  struct Input : reference::Array {
    Tensor tensor;
  };

  KernelsSuite();

  Kernels& kernels() { return *kernels_; }
  DType dtype() const { return GetParam().dtype; }

  // Normally distributed elements, different ones at each call. Where no dtype is named, it is the
  // compute dtype.
  Input Normal(const Shape& shape, double mean = 0, double stddev = 1) {
    return Normal(shape, mean, stddev, dtype());
  }
  Input Normal(const Shape& shape, double mean, double stddev, DType type);
  // `elements`, rounded.
  Input Given(const reference::Array& elements) { return Given(elements, dtype()); }
  Input Given(const reference::Array& elements, DType type);
  Tensor Upload(const Shape& shape, const std::vector<float>& elements) {
    return Upload(shape, elements, dtype());
  }
  Tensor Upload(const Shape& shape, const std::vector<float>& elements, DType type);
  Tensor Upload(const std::vector<int32_t>& elements);
  // Integers in [lowest, highest].
  std::vector<int32_t> Integers(int64_t count, int32_t lowest, int32_t highest);

  // An output that holds NaN: what a kernel does not write shows.
  Tensor Output(const Shape& shape) { return Output(shape, dtype()); }
  Tensor Output(const Shape& shape, DType type);
  Tensor Integers(const Shape& shape);

  // How a kernel writes a weight gradient: both ways, in fp32 and in the compute dtype.
  struct GradientMode {
    Write write;
    DType dtype;
  };
  std::vector<GradientMode> GradientModes() const;
  // An output for `mode`: NaN to overwrite, or `start` in memory of its own to add to.
  Tensor Target(const GradientMode& mode, const Input& start);

  // The elements of a floating tensor.
  std::vector<float> Download(const Tensor& x);
  std::vector<int32_t> DownloadIntegers(const Tensor& x);
  Input Downloaded(const Tensor& x);

  // Whether `actual` is `expected` within `roundings`, and `stored` ones to the compute dtype; else
  // the worst element, and how many differ.
  testing::AssertionResult Agrees(const reference::Result& expected, const Tensor& actual,
                                  double roundings, double stored = 0);
  // The same for an output of Target(mode, start).
  testing::AssertionResult Agrees(reference::Result expected, const GradientMode& mode,
                                  const Input& start, const Tensor& actual, double roundings,
                                  double stored = 0);
  // Whether two results hold the same bits.
  testing::AssertionResult SameBits(const std::vector<float>& a, const std::vector<float>& b);
  testing::AssertionResult SameBits(const Tensor& a, const Tensor& b) {
    return SameBits(Download(a), Download(b));
  }
  // Whether a kernel that treats each element by itself, run(inputs, output), gives an element the
  // same bits wherever a tensor of `shape` is cut: the cuts move it between vector bodies and
  // tails.
  using ElementKernel =
      std::function<void(const std::vector<Tensor>& inputs, const Tensor& output)>;
  testing::AssertionResult CutsDoNotShow(const std::vector<Input>& inputs,
                                         const ElementKernel& run);

  // A tensor that an optimizer updates together with others, and what the reference makes of it.
  struct Optimized {
    Kernels::OptimizedTensor tensor;
    Input gradient;
    reference::Result parameter;
    std::array<reference::Result, kMostOptimizerStates> states;
  };
  // One for each size, with states of zeros; gradients and copies have the dtypes of mixed
  // precision, each every one, some tensors have no copy, and some do not decay.
  std::vector<Optimized> MakeOptimized(absl::Span<const int64_t> sizes,
                                       const OptimizerRule& optimizer);
  // Gives each a new gradient, and takes a step with the kernel and with the reference.
  void TakeStep(const OptimizerRule& optimizer, const OptimizerStep& step,
                std::vector<Optimized>& all);
  // Whether parameters and states are the reference's, and copies those of the parameters.
  testing::AssertionResult Agrees(const std::vector<Optimized>& all, double roundings);

 private:
  std::unique_ptr<Allocator> allocator_;
  std::unique_ptr<Kernels> kernels_;
  uint64_t next_stream_ = 1;
};

// What can only be seen where less than fp32 is computed with.
class KernelsSuite16 : public KernelsSuite {};

}  // namespace lockstep
