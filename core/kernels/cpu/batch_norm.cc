// Batch normalisation. It is bound by memory: it is written to read its operands as few times as
// the statistics allow, with the activation and the residual of a ResNet block fused in.

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "core/base/parallel.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/float_elements.h"
#include "core/kernels/cpu/leaf_sums.h"
#include "core/kernels/cpu/span.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

using cpu::FloatInput;
using cpu::FloatOutput;

constexpr int64_t kGrain = 1 << 14;  // elements below which a fork does not pay

int64_t RowGrain(int64_t width) { return std::max<int64_t>(1, kGrain / width); }

// Two sums over the rows for each column of [rows, width]: sum0 then sum1 of all columns, along the
// tree of leaf_sums.h. make_add() gives each thread its own add(first, count, sum0, sum1), which
// adds a stretch of rows to the sums of their leaf, in order.
template <typename MakeAdd>
std::vector<float> ColumnSumPairs(int64_t rows, int64_t width, MakeAdd&& make_add) {
  const int64_t grain = RowGrain(width);
  const int chunks = cpu::RowLeafChunks(rows, grain);
  cpu::LeafSums leaves(cpu::RowLeaves(rows), chunks, 2 * width);
  std::vector<std::optional<decltype(make_add())>> adds(chunks);
  cpu::ForRowLeaves(rows, grain, [&](int chunk, int64_t leaf, int64_t first, int64_t leaf_rows) {
    if (!adds[chunk]) adds[chunk].emplace(make_add());
    auto& add = *adds[chunk];
    float* sums = leaves.Open(chunk, leaf);
    cpu::ForStretches(first, first + leaf_rows, cpu::StretchRows(width),
                      [&](int64_t at, int64_t count) { add(at, count, sums, sums + width); });
    leaves.Close(chunk);
  });
  const float* sums = leaves.Finish();
  return std::vector<float>(sums, sums + 2 * width);
}

// y = activation(x * factor + offset + residual), column by column.
template <bool kResidual, bool kActivate>
void Affine(const float* x, const float* factor, const float* offset, const float* residual,
            int64_t rows, int64_t width, float* y) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * width;
    const float* add = residual + (kResidual ? r * width : 0);
    float* out = y + r * width;
    for (int64_t c = 0; c < width; ++c) {
      float value = in[c] * factor[c] + offset[c];
      if constexpr (kResidual) value += add[c];
      if constexpr (kActivate) value = value < 0 ? 0 : value;  // NaN passes
      out[c] = value;
    }
  }
}

void NormalizeColumns(const Tensor& x, const Tensor& scale, const Tensor& shift,
                      const Tensor& residual, const float* mean, const float* variance,
                      float epsilon, Activation activation, const Tensor& y) {
  const int64_t width = x.shape()[-1], rows = x.shape().rows();
  FloatInput scales(scale), shifts(shift);
  const float* gamma = scales.LoadAll();
  const float* beta = shifts.LoadAll();
  std::vector<float> factor(width), offset(width);
  for (int64_t c = 0; c < width; ++c) {
    factor[c] = gamma[c] / std::sqrt(variance[c] + epsilon);
    offset[c] = beta[c] - mean[c] * factor[c];
  }
  const bool activate = activation == Activation::kRelu;
  const auto run = residual.defined() ? (activate ? Affine<true, true> : Affine<true, false>)
                                      : (activate ? Affine<false, true> : Affine<false, false>);
  const int64_t stretch = cpu::StretchRows(width), longest = stretch * width;
  ParallelFor(rows, RowGrain(width), [&](int64_t begin, int64_t end) {
    FloatInput input(x, longest), addend(residual, longest);
    FloatOutput output(y, longest);
    cpu::ForStretches(begin, end, stretch, [&](int64_t first, int64_t count) {
      const int64_t at = first * width, elements = count * width;
      const float* add = residual.defined() ? addend.Load(at, elements) : nullptr;
      run(input.Load(at, elements), factor.data(), offset.data(), add, count, width,
          output.Open(at, elements));
      output.Close();
    });
  });
}

}  // namespace

Tensor CpuKernels::BatchNorm(const Tensor& x, const Tensor& scale, const Tensor& shift,
                             const Tensor& residual, float epsilon, Activation activation,
                             const Tensor& y, const Tensor& mean, const Tensor& variance) {
  Span span(this, {x, scale, shift, residual}, {y, mean, variance});
  const int64_t width = x.shape()[-1], rows = x.shape().rows();
  CHECK_EQ(scale.elements(), width);
  if (SkipsLoops()) return Tensor();  // nothing is allocated below
  // Sums of differences to the first row, which lies near the mean: the squares do not cancel.
  FloatInput first_row(x, width);
  const float* origin = first_row.Load(0, width);
  const std::vector<float> sums = ColumnSumPairs(rows, width, [&] {
    return [=, input = FloatInput(x, cpu::StretchRows(width) * width)](
               int64_t first, int64_t count, float* sum, float* squares) mutable {
      const float* in = input.Load(first * width, count * width);
      for (int64_t r = 0; r < count; ++r) {
        const float* row = in + r * width;
        for (int64_t c = 0; c < width; ++c) {
          const float d = row[c] - origin[c];
          sum[c] += d;
          squares[c] += d * d;
        }
      }
    };
  });
  for (int64_t c = 0; c < width; ++c) {
    const double shifted = static_cast<double>(sums[c]) / rows;
    mean.data<float>()[c] = static_cast<float>(origin[c] + shifted);
    variance.data<float>()[c] = static_cast<float>(
        std::max(0.0, static_cast<double>(sums[width + c]) / rows - shifted * shifted));
  }
  NormalizeColumns(x, scale, shift, residual, mean.data<float>(), variance.data<float>(), epsilon,
                   activation, y);
  return Tensor();
}

void CpuKernels::BatchNormInference(const Tensor& x, const Tensor& scale, const Tensor& shift,
                                    const Tensor& residual, const Tensor& mean,
                                    const Tensor& variance, float epsilon, Activation activation,
                                    const Tensor& y) {
  Span span(this, {x, scale, shift, residual, mean, variance}, {y});
  if (SkipsLoops()) return;
  NormalizeColumns(x, scale, shift, residual, mean.data<float>(), variance.data<float>(), epsilon,
                   activation, y);
}

void CpuKernels::BatchNormBackward(const Tensor& x, const Tensor& scale, const Tensor& mean,
                                   const Tensor& variance, const Tensor& /*kept*/, float epsilon,
                                   const Tensor& y, const Tensor& dy, const Tensor& dx,
                                   const Tensor& dresidual, Write write, const Tensor& dscale,
                                   const Tensor& dshift) {
  Span span(this, {x, scale, mean, variance, y, dy}, {dx, dresidual, dscale, dshift});
  const int64_t width = x.shape()[-1], rows = x.shape().rows();
  const int64_t stretch = cpu::StretchRows(width), longest = stretch * width;
  // The gradient behind the activation goes to the residual as it is; without a residual of its own
  // it is kept in dx, which the second pass then rewrites in place. It is dy or zero: storing it
  // rounds nothing.
  const bool activated = y.defined();
  const bool keep = activated || dresidual.defined();
  const Tensor& masked = dresidual.defined() ? dresidual : dx;
  CHECK(masked.dtype() == dy.dtype()) << Name(masked.dtype()) << " and " << Name(dy.dtype());
  if (SkipsLoops()) return;
  const float* center = mean.data<float>();
  const std::vector<float> sums = ColumnSumPairs(rows, width, [&] {
    return [=, input = FloatInput(x, longest), gradient = FloatInput(dy, longest),
            output = FloatInput(y, longest), kept = FloatOutput(masked, longest)](
               int64_t first, int64_t count, float* sum, float* products) mutable {
      const int64_t at = first * width, elements = count * width;
      const float* in = input.Load(at, elements);
      const float* slopes = gradient.Load(at, elements);
      if (keep) {
        float* passed = kept.Open(at, elements);
        if (activated) {
          const float* out = output.Load(at, elements);
          for (int64_t i = 0; i < elements; ++i) passed[i] = out[i] > 0 ? slopes[i] : 0;
        } else {
          std::copy_n(slopes, elements, passed);
        }
        kept.Close();
        slopes = passed;
      }
      for (int64_t r = 0; r < count; ++r) {
        const float* in_row = in + r * width;
        const float* dy_row = slopes + r * width;
        for (int64_t c = 0; c < width; ++c) {
          sum[c] += dy_row[c];
          products[c] += dy_row[c] * (in_row[c] - center[c]);
        }
      }
    };
  });
  // dx = scale / sigma * (dy - mean(dy) - xhat * mean(dy * xhat)), as a * dy + b * x + c.
  FloatInput scales(scale);
  const float* gamma = scales.LoadAll();
  std::vector<float> a(width), b(width), c0(width), scale_sums(width), shift_sums(width);
  for (int64_t c = 0; c < width; ++c) {
    const double inverse =
        1.0 / std::sqrt(static_cast<double>(variance.data<float>()[c]) + epsilon);
    const double dscale_sum = sums[width + c] * inverse;
    const double factor = gamma[c] * inverse;
    a[c] = static_cast<float>(factor);
    b[c] = static_cast<float>(-factor * inverse * dscale_sum / rows);
    c0[c] = static_cast<float>(-factor * sums[c] / rows +
                               factor * inverse * dscale_sum / rows * center[c]);
    scale_sums[c] = static_cast<float>(dscale_sum);
    shift_sums[c] = sums[c];
  }
  cpu::WriteSums(scale_sums.data(), write, dscale);
  cpu::WriteSums(shift_sums.data(), write, dshift);
  ParallelFor(rows, RowGrain(width), [&](int64_t begin, int64_t end) {
    FloatInput input(x, longest), gradient(keep ? masked : dy, longest);
    FloatOutput result(dx, longest);
    cpu::ForStretches(begin, end, stretch, [&](int64_t first, int64_t count) {
      const int64_t at = first * width, elements = count * width;
      const float* in = input.Load(at, elements);
      const float* slopes = gradient.Load(at, elements);
      float* out = result.Open(at, elements);
      for (int64_t r = 0; r < count; ++r) {
        const float* in_row = in + r * width;
        const float* dy_row = slopes + r * width;
        float* out_row = out + r * width;
        for (int64_t c = 0; c < width; ++c) {
          out_row[c] = a[c] * dy_row[c] + (b[c] * in_row[c] + c0[c]);
        }
      }
      result.Close();
    });
  });
}

void CpuKernels::AddStatistics(const Tensor& mean, const Tensor& variance, float weight,
                               Write write, const Tensor& sums) {
  Span span(this, {mean, variance}, {sums});
  const int64_t channels = mean.elements();
  CHECK_EQ(sums.elements(), 3 * channels);
  float* out = sums.data<float>();
  if (write == Write::kOverwrite) std::fill_n(out, 3 * channels, 0.0f);
  for (int64_t c = 0; c < channels; ++c) {
    const float m = mean.data<float>()[c];
    out[c] += weight * m;
    out[channels + c] += weight * variance.data<float>()[c];
    out[2 * channels + c] += weight * (m * m);
  }
}

void CpuKernels::UpdateRunningStatistics(const Tensor& sums, double weight, int64_t rows,
                                         float momentum, const Tensor& running_mean,
                                         const Tensor& running_variance) {
  Span span(this, {sums}, {running_mean, running_variance});
  const int64_t channels = running_mean.elements();
  const float* in = sums.data<float>();
  const bool has_squares = sums.elements() == 3 * channels;
  CHECK(has_squares || sums.elements() == 2 * channels);
  const double samples = weight * static_cast<double>(rows);
  const double unbias = samples > 1 ? samples / (samples - 1) : 1;
  for (int64_t c = 0; c < channels; ++c) {
    const double mean = in[c] / weight;
    const double within = in[channels + c] / weight;
    const double between = has_squares ? in[2 * channels + c] / weight - mean * mean : 0;
    const double variance = (within + std::max(0.0, between)) * unbias;
    float& running = running_mean.data<float>()[c];
    float& spread = running_variance.data<float>()[c];
    running = static_cast<float>(running + momentum * (mean - running));
    spread = static_cast<float>(spread + momentum * (variance - spread));
  }
}

}  // namespace lockstep
