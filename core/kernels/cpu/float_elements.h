// The 16-bit types on the CPU: elements are converted to fp32 on their way in, and rounded once on
// their way out, a stretch at a time, so that they are in the first-level cache when the arithmetic
// meets them. An fp32 tensor is read and written where it lies.
//
//   FloatInput in(x, width);
//   FloatOutput out(y, width);
//   for (...) {
//     const float* row = in.Load(r * width, width);
//     float* result = out.Open(r * width, width);
//     ...
//     out.Close();
//   }

#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor/tensor.h"

namespace lockstep::cpu {

// to[i] = element first + i of a floating tensor.
void LoadFloats(const Tensor& from, int64_t first, int64_t count, float* to);
// Element first + i of a floating tensor = from[i], rounded to the nearest, ties to even.
void StoreFloats(const float* from, int64_t first, int64_t count, const Tensor& to);

// Reads stretches of at most `longest` elements. For one thread; the tensor may be undefined if
// nothing is read.
class FloatInput {
 public:
  FloatInput(const Tensor& tensor, int64_t longest)
      : tensor_(tensor), buffer_(IsDirect() ? 0 : longest) {}

  // Valid until the next call.
  const float* Load(int64_t first, int64_t count) {
    if (IsDirect()) return tensor_.data<float>() + first;
    LoadFloats(tensor_, first, count, buffer_.data());
    return buffer_.data();
  }

 private:
  bool IsDirect() const { return !tensor_.defined() || tensor_.dtype() == DType::kF32; }

  const Tensor& tensor_;
  std::vector<float> buffer_;
};

// Writes stretches of at most `longest` elements. For one thread. The tensor may be one that is
// read: a stretch that has been loaded may be written.
class FloatOutput {
 public:
  FloatOutput(const Tensor& tensor, int64_t longest)
      : tensor_(tensor), buffer_(IsDirect() ? 0 : longest) {}

  // Where to write elements [first, first + count); undefined contents.
  float* Open(int64_t first, int64_t count) {
    if (IsDirect()) return tensor_.data<float>() + first;
    first_ = first;
    count_ = count;
    return buffer_.data();
  }
  // After all of them have been written.
  void Close() {
    if (!IsDirect()) StoreFloats(buffer_.data(), first_, count_, tensor_);
  }

 private:
  bool IsDirect() const { return !tensor_.defined() || tensor_.dtype() == DType::kF32; }

  const Tensor& tensor_;
  std::vector<float> buffer_;
  int64_t first_ = 0, count_ = 0;
};

}  // namespace lockstep::cpu
