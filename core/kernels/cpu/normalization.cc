// Batch and layer normalisation. Both are bound by memory: each is written to read its operands as
// few times as the statistics allow, with the activation and the residual of a ResNet block fused
// in.

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/parallel.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/span.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements below which a fork does not pay

// Rows whose sums are kept in fp32 before they are added in double: short enough that rounding
// stays below what the sums of many rows are accurate to anyway.
constexpr int64_t kFloatRows = 64;

int64_t RowGrain(int64_t width) { return std::max<int64_t>(1, kGrain / width); }

// Adds, for the columns of [rows, width], two sums over the rows. `add(row, sum0, sum1)` adds one
// row to float sums. The result holds sum0 then sum1 of all columns.
template <typename AddRow>
std::vector<double> ColumnSumPairs(int64_t rows, int64_t width, AddRow&& add) {
  const int parts = ParallelParts(rows, RowGrain(width));
  std::vector<double> partial(parts * 2 * width);
  std::vector<float> running(parts * 2 * width);
  ParallelForParts(rows, RowGrain(width), [&](int part, int64_t begin, int64_t end) {
    float* sums = running.data() + part * 2 * width;
    double* totals = partial.data() + part * 2 * width;
    for (int64_t block = begin; block < end; block += kFloatRows) {
      std::fill_n(sums, 2 * width, 0.0f);
      const int64_t block_end = std::min(end, block + kFloatRows);
      for (int64_t r = block; r < block_end; ++r) add(r, sums, sums + width);
      for (int64_t i = 0; i < 2 * width; ++i) totals[i] += sums[i];
    }
  });
  for (int part = 1; part < parts; ++part) {
    for (int64_t i = 0; i < 2 * width; ++i) partial[i] += partial[part * 2 * width + i];
  }
  partial.resize(2 * width);
  return partial;
}

// y = activation(x * factor + offset + residual), column by column.
template <bool kResidual, bool kActivate>
void Affine(const float* x, const float* factor, const float* offset, const float* residual,
            int64_t rows, int64_t width, float* y) {
  ParallelFor(rows, RowGrain(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
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
  });
}

void NormalizeColumns(const Tensor& x, const Tensor& scale, const Tensor& shift,
                      const Tensor& residual, const float* mean, const float* variance,
                      float epsilon, Activation activation, const Tensor& y) {
  const int64_t width = x.shape()[-1], rows = x.shape().rows();
  std::vector<float> factor(width), offset(width);
  for (int64_t c = 0; c < width; ++c) {
    factor[c] = scale.data<float>()[c] / std::sqrt(variance[c] + epsilon);
    offset[c] = shift.data<float>()[c] - mean[c] * factor[c];
  }
  const float* add = residual.defined() ? residual.data<float>() : nullptr;
  const bool activate = activation == Activation::kRelu;
  const auto run = add ? (activate ? Affine<true, true> : Affine<true, false>)
                       : (activate ? Affine<false, true> : Affine<false, false>);
  run(x.data<float>(), factor.data(), offset.data(), add, rows, width, y.data<float>());
}

}  // namespace

void CpuKernels::BatchNorm(const Tensor& x, const Tensor& scale, const Tensor& shift,
                           const Tensor& residual, float epsilon, Activation activation,
                           const Tensor& y, const Tensor& mean, const Tensor& variance) {
  Span span(this);
  const int64_t width = x.shape()[-1], rows = x.shape().rows();
  CHECK_EQ(scale.elements(), width);
  const float* data = x.data<float>();
  // Sums of differences to the first row, which lies near the mean: the squares do not cancel.
  const std::vector<double> sums =
      ColumnSumPairs(rows, width, [&](int64_t r, float* sum, float* squares) {
        const float* row = data + r * width;
        for (int64_t c = 0; c < width; ++c) {
          const float d = row[c] - data[c];
          sum[c] += d;
          squares[c] += d * d;
        }
      });
  for (int64_t c = 0; c < width; ++c) {
    const double shifted = sums[c] / rows;
    mean.data<float>()[c] = static_cast<float>(data[c] + shifted);
    variance.data<float>()[c] =
        static_cast<float>(std::max(0.0, sums[width + c] / rows - shifted * shifted));
  }
  NormalizeColumns(x, scale, shift, residual, mean.data<float>(), variance.data<float>(), epsilon,
                   activation, y);
}

void CpuKernels::BatchNormInference(const Tensor& x, const Tensor& scale, const Tensor& shift,
                                    const Tensor& residual, const Tensor& mean,
                                    const Tensor& variance, float epsilon, Activation activation,
                                    const Tensor& y) {
  Span span(this);
  NormalizeColumns(x, scale, shift, residual, mean.data<float>(), variance.data<float>(), epsilon,
                   activation, y);
}

void CpuKernels::BatchNormBackward(const Tensor& x, const Tensor& scale, const Tensor& mean,
                                   const Tensor& variance, float epsilon, const Tensor& y,
                                   const Tensor& dy, const Tensor& dx, const Tensor& dresidual,
                                   Write write, const Tensor& dscale, const Tensor& dshift) {
  Span span(this);
  const int64_t width = x.shape()[-1], rows = x.shape().rows();
  const float* in = x.data<float>();
  const float* gradient = dy.data<float>();
  // The gradient behind the activation goes to the residual as it is; without a residual of its own
  // it is kept in dx, which the second pass then rewrites in place.
  const bool activated = y.defined();
  float* masked = dresidual.defined() ? dresidual.data<float>() : dx.data<float>();
  const bool keep = activated || dresidual.defined();
  const float* center = mean.data<float>();
  const std::vector<double> sums =
      ColumnSumPairs(rows, width, [&](int64_t r, float* sum, float* products) {
        const float* in_row = in + r * width;
        const float* dy_row = gradient + r * width;
        float* masked_row = masked + r * width;
        if (activated) {
          const float* y_row = y.data<float>() + r * width;
          for (int64_t c = 0; c < width; ++c) {
            masked_row[c] = y_row[c] > 0 ? dy_row[c] : 0;
          }
          dy_row = masked_row;
        } else if (keep) {
          std::copy_n(dy_row, width, masked_row);
        }
        for (int64_t c = 0; c < width; ++c) {
          sum[c] += dy_row[c];
          products[c] += dy_row[c] * (in_row[c] - center[c]);
        }
      });
  // dx = scale / sigma * (dy - mean(dy) - xhat * mean(dy * xhat)), as a * dy + b * x + c.
  std::vector<float> a(width), b(width), c0(width);
  for (int64_t c = 0; c < width; ++c) {
    const double inverse =
        1.0 / std::sqrt(static_cast<double>(variance.data<float>()[c]) + epsilon);
    const double dscale_sum = sums[width + c] * inverse;
    const double factor = scale.data<float>()[c] * inverse;
    a[c] = static_cast<float>(factor);
    b[c] = static_cast<float>(-factor * inverse * dscale_sum / rows);
    c0[c] = static_cast<float>(-factor * sums[c] / rows +
                               factor * inverse * dscale_sum / rows * center[c]);
    const bool add = write == Write::kAccumulate;
    if (dscale.defined()) {
      float& out = dscale.data<float>()[c];
      out = (add ? out : 0) + static_cast<float>(dscale_sum);
    }
    if (dshift.defined()) {
      float& out = dshift.data<float>()[c];
      out = (add ? out : 0) + static_cast<float>(sums[c]);
    }
  }
  const float* source = keep ? masked : gradient;
  ParallelFor(rows, RowGrain(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* in_row = in + r * width;
      const float* dy_row = source + r * width;
      float* out = dx.data<float>() + r * width;
      for (int64_t c = 0; c < width; ++c) out[c] = a[c] * dy_row[c] + (b[c] * in_row[c] + c0[c]);
    }
  });
}

void CpuKernels::AddStatistics(const Tensor& mean, const Tensor& variance, Write write,
                               const Tensor& sums) {
  Span span(this);
  const int64_t channels = mean.elements();
  CHECK_EQ(sums.elements(), 3 * channels);
  float* out = sums.data<float>();
  if (write == Write::kOverwrite) std::fill_n(out, 3 * channels, 0.0f);
  for (int64_t c = 0; c < channels; ++c) {
    const float m = mean.data<float>()[c];
    out[c] += m;
    out[channels + c] += variance.data<float>()[c];
    out[2 * channels + c] += m * m;
  }
}

void CpuKernels::UpdateRunningStatistics(const Tensor& sums, int64_t micro_batches, int64_t rows,
                                         float momentum, const Tensor& running_mean,
                                         const Tensor& running_variance) {
  Span span(this);
  const int64_t channels = running_mean.elements();
  const float* in = sums.data<float>();
  const double samples = static_cast<double>(micro_batches) * rows;
  const double unbias = samples > 1 ? samples / (samples - 1) : 1;
  for (int64_t c = 0; c < channels; ++c) {
    const double mean = in[c] / static_cast<double>(micro_batches);
    const double within = in[channels + c] / static_cast<double>(micro_batches);
    const double between = in[2 * channels + c] / static_cast<double>(micro_batches) - mean * mean;
    const double variance = (within + std::max(0.0, between)) * unbias;
    float& running = running_mean.data<float>()[c];
    float& spread = running_variance.data<float>()[c];
    running = static_cast<float>(running + momentum * (mean - running));
    spread = static_cast<float>(spread + momentum * (variance - spread));
  }
}

void CpuKernels::LayerNorm(const Tensor& x, const Tensor& scale, const Tensor& shift, float epsilon,
                           const Tensor& y, const Tensor& mean, const Tensor& inverse_stddev) {
  Span span(this);
  const int64_t width = x.shape()[-1];
  const float* gamma = scale.data<float>();
  const float* beta = shift.data<float>();
  ParallelFor(x.shape().rows(), RowGrain(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* row = x.data<float>() + r * width;
      float* out = y.data<float>() + r * width;
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < width; ++i) sum += row[i];
      const float center = sum / width;
      float squares = 0;
#pragma omp simd reduction(+ : squares)
      for (int64_t i = 0; i < width; ++i) squares += (row[i] - center) * (row[i] - center);
      const float inverse = 1.0f / std::sqrt(squares / width + epsilon);
      for (int64_t i = 0; i < width; ++i) out[i] = (row[i] - center) * inverse * gamma[i] + beta[i];
      mean.data<float>()[r] = center;
      inverse_stddev.data<float>()[r] = inverse;
    }
  });
}

void CpuKernels::LayerNormBackward(const Tensor& x, const Tensor& scale, const Tensor& mean,
                                   const Tensor& inverse_stddev, const Tensor& dy,
                                   const Tensor& residual, const Tensor& dx, Write write,
                                   const Tensor& dscale, const Tensor& dshift) {
  Span span(this);
  const int64_t width = x.shape()[-1], rows = x.shape().rows();
  const float* gamma = scale.data<float>();
  const int parts = ParallelParts(rows, RowGrain(width));
  std::vector<float> partial(parts * 2 * width, 0.0f);
  ParallelForParts(rows, RowGrain(width), [&](int part, int64_t begin, int64_t end) {
    float* scale_sums = partial.data() + part * 2 * width;
    float* shift_sums = scale_sums + width;
    for (int64_t r = begin; r < end; ++r) {
      const float* row = x.data<float>() + r * width;
      const float* dy_row = dy.data<float>() + r * width;
      float* out = dx.data<float>() + r * width;
      const float center = mean.data<float>()[r], inverse = inverse_stddev.data<float>()[r];
      float sum = 0, products = 0;
#pragma omp simd reduction(+ : sum, products)
      for (int64_t i = 0; i < width; ++i) {
        const float normalized = (row[i] - center) * inverse, g = dy_row[i] * gamma[i];
        sum += g;
        products += g * normalized;
        scale_sums[i] += dy_row[i] * normalized;
        shift_sums[i] += dy_row[i];
      }
      const float mean_g = sum / width, mean_product = products / width;
      if (residual.defined()) {
        const float* add = residual.data<float>() + r * width;
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
  });
  const auto store = [&](const Tensor& out, int64_t offset) {
    if (!out.defined()) return;
    for (int64_t i = 0; i < width; ++i) {
      float sum = partial[offset + i];
      for (int p = 1; p < parts; ++p) sum += partial[p * 2 * width + offset + i];
      out.data<float>()[i] = (write == Write::kAccumulate ? out.data<float>()[i] : 0) + sum;
    }
  };
  store(dscale, 0);
  store(dshift, width);
}

}  // namespace lockstep
