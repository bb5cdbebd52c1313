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

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/parallel.h"  // SkipsLoops
#include "core/kernels/kernels.h"
#include "core/tensor/tensor.h"

namespace lockstep::cpu {

// to[i] = element first + i of a floating tensor.
void LoadFloats(const Tensor& from, int64_t first, int64_t count, float* to);
// Element first + i of a floating tensor = from[i], rounded to the nearest, ties to even.
void StoreFloats(const float* from, int64_t first, int64_t count, const Tensor& to);
// Rounds x[0 .. count) to values of a floating dtype, as StoreFloats does.
void RoundFloats(DType dtype, int64_t count, float* x);

// A stretch of elements of which a kernel can hold a handful of tensors' in the first-level cache.
inline constexpr int64_t kStretch = 2048;

// Calls run(first, count) for [begin, end) in stretches of at most `length`.
template <typename Function>
void ForStretches(int64_t begin, int64_t end, int64_t length, Function&& run) {
  for (int64_t first = begin; first < end; first += length) {
    run(first, std::min(length, end - first));
  }
}

// Rows of which each tensor takes a stretch.
inline int64_t StretchRows(int64_t width) { return std::max<int64_t>(1, kStretch / width); }

// Asks for elements of a 16-bit tensor, so that they come from memory while the arithmetic runs; a
// conversion by itself would wait for each line.
inline void Prefetch(const Tensor& tensor, int64_t first, int64_t count) {
  constexpr int64_t kLine = 64;
  const std::byte* begin = tensor.raw() + 2 * first;
  for (int64_t i = 0; i < 2 * count; i += kLine) __builtin_prefetch(begin + i);
}

// Scratch that starts on a cache line, as tensors do: the order of a vectorised sum depends on
// that.
class FloatBuffer {
 public:
  explicit FloatBuffer(int64_t size) : lines_((size + kLine - 1) / kLine) {}

  bool empty() const { return lines_.empty(); }
  float* data() { return reinterpret_cast<float*>(lines_.data()); }

 private:
  static constexpr int64_t kLine = 16;
  struct alignas(64) Line {
    float floats[kLine];
  };
  std::vector<Line> lines_;
};

// Reads stretches of at most `longest` elements. For one thread; the tensor may be undefined if
// nothing is read. While loops are skipped nothing is read, and nobody looks at what Load returns.
class FloatInput {
 public:
  FloatInput(const Tensor& tensor, int64_t longest)
      : tensor_(tensor), buffer_(IsDirect() || SkipsLoops() ? 0 : longest) {}
  // Reads all of a small tensor at once.
  explicit FloatInput(const Tensor& tensor) : FloatInput(tensor, tensor.elements()) {}

  // Valid until the next call.
  const float* Load(int64_t first, int64_t count) {
    if (IsDirect()) return tensor_.data<float>() + first;
    if (buffer_.empty()) return nullptr;
    LoadFloats(tensor_, first, count, buffer_.data());
    Prefetch(tensor_, first + count, std::min(count, kStretch));
    return buffer_.data();
  }
  const float* LoadAll() { return Load(0, tensor_.elements()); }

 private:
  bool IsDirect() const { return !tensor_.defined() || tensor_.dtype() == DType::kF32; }

  const Tensor& tensor_;
  FloatBuffer buffer_;
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
  // The same with what a kernel adds to: zeros, or what the tensor holds.
  float* OpenSums(Write write, int64_t first, int64_t count) {
    float* sums = Open(first, count);
    if (write == Write::kOverwrite) {
      std::fill_n(sums, count, 0.0f);
    } else if (!IsDirect()) {
      LoadFloats(tensor_, first, count, sums);
    }
    return sums;
  }
  // After all of them have been written.
  void Close() {
    if (!IsDirect()) StoreFloats(buffer_.data(), first_, count_, tensor_);
  }

 private:
  bool IsDirect() const { return !tensor_.defined() || tensor_.dtype() == DType::kF32; }

  const Tensor& tensor_;
  FloatBuffer buffer_;
  int64_t first_ = 0, count_ = 0;
};

// sums[i] is added to element i of `to`, or replaces it; nothing where `to` is undefined.
void WriteSums(const float* sums, Write write, const Tensor& to);

}  // namespace lockstep::cpu
