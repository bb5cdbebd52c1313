// Layer and root mean square normalisation. They are bound by memory: they are written to read
// their operands as few times as the statistics allow.

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/parallel.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/float_elements.h"
#include "core/kernels/cpu/leaf_sums.h"
#include "core/kernels/cpu/row_sums.h"
#include "core/kernels/cpu/span.h"

namespace lockstep {
namespace {

using cpu::FloatInput;
using cpu::FloatOutput;

constexpr int64_t kGrain = 1 << 14;  // elements below which a fork does not pay

int64_t RowGrain(int64_t width) { return std::max<int64_t>(1, kGrain / width); }

}  // namespace

void CpuKernels::LayerNorm(const Tensor& x, const Tensor& scale, const Tensor& shift, float epsilon,
                           const Tensor& y, const Tensor& mean, const Tensor& inverse_stddev) {
  Span span(this, {x, scale, shift}, {y, mean, inverse_stddev});
  const int64_t width = x.shape()[-1];
  FloatInput scales(scale), shifts(shift);
  const float* gamma = scales.LoadAll();
  const float* beta = shifts.LoadAll();
  const int64_t stretch = cpu::StretchRows(width), longest = stretch * width;
  ParallelFor(x.shape().rows(), RowGrain(width), [&](int64_t begin, int64_t end) {
    FloatInput input(x, longest);
    FloatOutput output(y, longest);
    cpu::ForStretches(begin, end, stretch, [&](int64_t first, int64_t count) {
      const float* in = input.Load(first * width, count * width);
      float* results = output.Open(first * width, count * width);
      for (int64_t r = 0; r < count; ++r) {
        const float* row = in + r * width;
        float* out = results + r * width;
        const float center = cpu::SumOfRow(row, width) / width;
        const float squares =
            cpu::SumRow(width, [=](int64_t i) { return (row[i] - center) * (row[i] - center); });
        const float inverse = 1.0f / std::sqrt(squares / width + epsilon);
        for (int64_t i = 0; i < width; ++i) {
          out[i] = (row[i] - center) * inverse * gamma[i] + beta[i];
        }
        mean.data<float>()[first + r] = center;
        inverse_stddev.data<float>()[first + r] = inverse;
      }
      output.Close();
    });
  });
}

void CpuKernels::LayerNormBackward(const Tensor& x, const Tensor& scale, const Tensor& mean,
                                   const Tensor& inverse_stddev, const Tensor& dy,
                                   const Tensor& residual, const Tensor& dx, Write write,
                                   const Tensor& dscale, const Tensor& dshift) {
  Span span(this, {x, scale, mean, inverse_stddev, dy, residual}, {dx, dscale, dshift});
  const int64_t width = x.shape()[-1], rows = x.shape().rows();
  FloatInput scales(scale);
  const float* all_scales = scales.LoadAll();
  const int64_t stretch = cpu::StretchRows(width), longest = stretch * width;
  const int64_t grain = RowGrain(width);
  cpu::LeafSums leaves(cpu::RowLeaves(rows), cpu::RowLeafChunks(rows, grain), 2 * width);
  cpu::ForRowLeaves(rows, grain, [&](int chunk, int64_t leaf, int64_t begin, int64_t leaf_rows) {
    FloatInput input(x, longest), gradient(dy, longest), addend(residual, longest);
    FloatOutput output(dx, longest);
    float* scale_sums = leaves.Open(chunk, leaf);
    float* shift_sums = scale_sums + width;
    cpu::ForStretches(begin, begin + leaf_rows, stretch, [&](int64_t first, int64_t count) {
      const int64_t at = first * width, elements = count * width;
      const float* in = input.Load(at, elements);
      const float* slopes = gradient.Load(at, elements);
      const float* addends = residual.defined() ? addend.Load(at, elements) : nullptr;
      float* results = output.Open(at, elements);
      const float* gamma = all_scales;  // read through the closure, gcc gathers it
      for (int64_t r = 0; r < count; ++r) {
        const float* row = in + r * width;
        const float* dy_row = slopes + r * width;
        float* out = results + r * width;
        const float center = mean.data<float>()[first + r];
        const float inverse = inverse_stddev.data<float>()[first + r];
        const cpu::TwoSums sums = cpu::SumRowTwice(width, [=](int64_t i) -> cpu::TwoSums {
          const float normalized = (row[i] - center) * inverse, g = dy_row[i] * gamma[i];
          scale_sums[i] += dy_row[i] * normalized;
          shift_sums[i] += dy_row[i];
          return {g, g * normalized};
        });
        const float mean_g = sums.first / width, mean_product = sums.second / width;
        if (addends != nullptr) {
          const float* add = addends + r * width;
          for (int64_t i = 0; i < width; ++i) {
            const float normalized = (row[i] - center) * inverse;
            out[i] = add[i] + inverse * (dy_row[i] * gamma[i] - mean_g - normalized * mean_product);
          }
        } else {
          for (int64_t i = 0; i < width; ++i) {
            const float normalized = (row[i] - center) * inverse;
            out[i] = inverse * (dy_row[i] * gamma[i] - mean_g - normalized * mean_product);
          }
        }
      }
      output.Close();
    });
    leaves.Close(chunk);
  });
  leaves.WriteTo({dscale, dshift}, write);
}

void CpuKernels::RmsNorm(const Tensor& x, const Tensor& scale, float epsilon, const Tensor& y,
                         const Tensor& inverse_rms) {
  Span span(this, {x, scale}, {y, inverse_rms});
  const int64_t width = x.shape()[-1];
  FloatInput scales(scale);
  const float* gamma = scales.LoadAll();
  const int64_t stretch = cpu::StretchRows(width), longest = stretch * width;
  ParallelFor(x.shape().rows(), RowGrain(width), [&](int64_t begin, int64_t end) {
    FloatInput input(x, longest);
    FloatOutput output(y, longest);
    cpu::ForStretches(begin, end, stretch, [&](int64_t first, int64_t count) {
      const float* in = input.Load(first * width, count * width);
      float* results = output.Open(first * width, count * width);
      for (int64_t r = 0; r < count; ++r) {
        const float* row = in + r * width;
        float* out = results + r * width;
        const float squares = cpu::SumRow(width, [=](int64_t i) { return row[i] * row[i]; });
        const float inverse = 1.0f / std::sqrt(squares / width + epsilon);
        for (int64_t i = 0; i < width; ++i) out[i] = row[i] * inverse * gamma[i];
        inverse_rms.data<float>()[first + r] = inverse;
      }
      output.Close();
    });
  });
}

void CpuKernels::RmsNormBackward(const Tensor& x, const Tensor& scale, const Tensor& inverse_rms,
                                 const Tensor& dy, const Tensor& residual, const Tensor& dx,
                                 Write write, const Tensor& dscale) {
  Span span(this, {x, scale, inverse_rms, dy, residual}, {dx, dscale});
  const int64_t width = x.shape()[-1], rows = x.shape().rows();
  FloatInput scales(scale);
  const float* all_scales = scales.LoadAll();
  const int64_t stretch = cpu::StretchRows(width), longest = stretch * width;
  const int64_t grain = RowGrain(width);
  cpu::LeafSums leaves(cpu::RowLeaves(rows), cpu::RowLeafChunks(rows, grain), width);
  cpu::ForRowLeaves(rows, grain, [&](int chunk, int64_t leaf, int64_t begin, int64_t leaf_rows) {
    FloatInput input(x, longest), gradient(dy, longest), addend(residual, longest);
    FloatOutput output(dx, longest);
    float* scale_sums = leaves.Open(chunk, leaf);
    cpu::ForStretches(begin, begin + leaf_rows, stretch, [&](int64_t first, int64_t count) {
      const int64_t at = first * width, elements = count * width;
      const float* in = input.Load(at, elements);
      const float* slopes = gradient.Load(at, elements);
      const float* addends = residual.defined() ? addend.Load(at, elements) : nullptr;
      float* results = output.Open(at, elements);
      const float* gamma = all_scales;  // read through the closure, gcc gathers it
      for (int64_t r = 0; r < count; ++r) {
        const float* row = in + r * width;
        const float* dy_row = slopes + r * width;
        float* out = results + r * width;
        const float inverse = inverse_rms.data<float>()[first + r];
        const float products = cpu::SumRow(width, [=](int64_t i) {
          const float product = dy_row[i] * (row[i] * inverse);
          scale_sums[i] += product;
          return product * gamma[i];
        });
        const float mean_product = products / width;
        if (addends != nullptr) {
          const float* add = addends + r * width;
          for (int64_t i = 0; i < width; ++i) {
            out[i] = add[i] + inverse * (dy_row[i] * gamma[i] - row[i] * inverse * mean_product);
          }
        } else {
          for (int64_t i = 0; i < width; ++i) {
            out[i] = inverse * (dy_row[i] * gamma[i] - row[i] * inverse * mean_product);
          }
        }
      }
      output.Close();
    });
    leaves.Close(chunk);
  });
  leaves.WriteTo({dscale}, write);
}

}  // namespace lockstep
