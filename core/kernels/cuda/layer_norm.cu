#include <cstdint>
#include <type_traits>

#include "core/kernels/cuda/column_sums.cuh"
#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/layer_norm.h"
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/cuda/warp_rows.cuh"

namespace lockstep::cuda {
namespace {

template <int kCount>
__global__ void ForwardKernel(int64_t rows, int64_t width, Array x, Array scale, Array shift,
                              float epsilon, Array y, float* mean, float* inverse_stddev) {
  const int64_t row = WarpRow();
  if (row >= rows) return;
  float sum = 0;
  ForColumns<kCount>(width, [&](int64_t c) {
    float in[kCount];
    Load(x, row * width + c, in);
    for (int i = 0; i < kCount; ++i) sum += in[i];
  });
  const float center = WarpReduce(sum, Plus{}) / static_cast<float>(width);
  float squares = 0;
  ForColumns<kCount>(width, [&](int64_t c) {
    float in[kCount];
    Load(x, row * width + c, in);
    for (int i = 0; i < kCount; ++i) squares += (in[i] - center) * (in[i] - center);
  });
  const float variance = WarpReduce(squares, Plus{}) / static_cast<float>(width);
  const float inverse = 1.0f / sqrtf(variance + epsilon);
  ForColumns<kCount>(width, [&](int64_t c) {
    float in[kCount], gamma[kCount], beta[kCount], out[kCount];
    Load(x, row * width + c, in);
    Load(scale, c, gamma);
    Load(shift, c, beta);
    for (int i = 0; i < kCount; ++i) out[i] = (in[i] - center) * inverse * gamma[i] + beta[i];
    Store(y, row * width + c, out);
  });
  if (threadIdx.x % kWarp == 0) {
    mean[row] = center;
    inverse_stddev[row] = inverse;
  }
}

template <int kCount>
__global__ void InputGradientKernel(LayerNormInputs n, Array residual, Array dx) {
  const int64_t row = WarpRow(), width = n.width;
  if (row >= n.rows) return;
  const float center = n.mean[row], inverse = n.inverse_stddev[row];
  float sum = 0, products = 0;
  ForColumns<kCount>(width, [&](int64_t c) {
    float in[kCount], slopes[kCount], gamma[kCount];
    Load(n.x, row * width + c, in);
    Load(n.dy, row * width + c, slopes);
    Load(n.scale, c, gamma);
    for (int i = 0; i < kCount; ++i) {
      const float g = slopes[i] * gamma[i];
      sum += g;
      products += g * ((in[i] - center) * inverse);
    }
  });
  const float mean_g = WarpReduce(sum, Plus{}) / static_cast<float>(width);
  const float mean_product = WarpReduce(products, Plus{}) / static_cast<float>(width);
  ForColumns<kCount>(width, [&](int64_t c) {
    float in[kCount], slopes[kCount], gamma[kCount], add[kCount] = {}, out[kCount];
    Load(n.x, row * width + c, in);
    Load(n.dy, row * width + c, slopes);
    Load(n.scale, c, gamma);
    if (residual.data != nullptr) Load(residual, row * width + c, add);
    for (int i = 0; i < kCount; ++i) {
      const float normalized = (in[i] - center) * inverse;
      out[i] = add[i] + inverse * (slopes[i] * gamma[i] - mean_g - normalized * mean_product);
    }
    Store(dx, row * width + c, out);
  });
}

// Rows that a warp holds in registers: their elements are read once, all of them under way
// together. A lane has kVector columns of each of kSegments segments. All arrays have the type T: a
// choice of dtypes at each load and store, of which there is one for each segment, would make the
// program several times as large.
constexpr int kSegment = kWarp * kVector;
constexpr int kMostSegments = 4;

template <typename T>
constexpr DType kDTypeOf = std::is_same_v<T, float>    ? DType::kF32
                           : std::is_same_v<T, __half> ? DType::kF16
                                                       : DType::kBF16;

// The elements of an array whose type is known.
template <typename T>
T* Elements(const Array& array) {
  return static_cast<T*>(array.data);
}

// Calls f(segment, column) for the calling lane's columns.
template <int kSegments, typename Function>
__device__ __forceinline__ void ForSegments(int64_t width, Function&& f) {
#pragma unroll
  for (int s = 0; s < kSegments; ++s) {
    const int64_t c = s * kSegment + static_cast<int>(threadIdx.x) % kWarp * kVector;
    if (c < width) f(s, c);
  }
}

// Calls f(segment, column) for all segments: behind the row's end with its last columns again, so
// that no load waits for a decision.
template <int kSegments, typename Function>
__device__ __forceinline__ void ForAllSegments(int64_t width, Function&& f) {
#pragma unroll
  for (int s = 0; s < kSegments; ++s) {
    const int64_t c = s * kSegment + static_cast<int>(threadIdx.x) % kWarp * kVector;
    f(s, c < width ? c : width - kVector);
  }
}

// Loads the calling lane's columns of a row.
template <int kSegments, typename T>
__device__ __forceinline__ void LoadSegments(const T* row, int64_t width,
                                             float (&out)[kSegments][kVector]) {
  ForAllSegments<kSegments>(width, [&](int s, int64_t c) { Load(row, c, out[s]); });
}

template <int kSegments, typename T>
__global__ void ShortForwardKernel(int64_t rows, int64_t width, const T* x, const T* scale,
                                   const T* shift, float epsilon, T* y, float* mean,
                                   float* inverse_stddev) {
  const int64_t row = WarpRow();
  if (row >= rows) return;
  float in[kSegments][kVector];
  LoadSegments(x + row * width, width, in);
  float sum = 0;
  ForSegments<kSegments>(width, [&](int s, int64_t) {
    for (int i = 0; i < kVector; ++i) sum += in[s][i];
  });
  const float center = WarpReduce(sum, Plus{}) / static_cast<float>(width);
  float squares = 0;
  ForSegments<kSegments>(width, [&](int s, int64_t) {
    for (int i = 0; i < kVector; ++i) squares += (in[s][i] - center) * (in[s][i] - center);
  });
  const float variance = WarpReduce(squares, Plus{}) / static_cast<float>(width);
  const float inverse = 1.0f / sqrtf(variance + epsilon);
  ForSegments<kSegments>(width, [&](int s, int64_t c) {
    float gamma[kVector], beta[kVector], out[kVector];
    Load(scale, c, gamma);
    Load(shift, c, beta);
    for (int i = 0; i < kVector; ++i) out[i] = (in[s][i] - center) * inverse * gamma[i] + beta[i];
    Store({y, kDTypeOf<T>}, row * width + c, out);
  });
  if (threadIdx.x % kWarp == 0) {
    mean[row] = center;
    inverse_stddev[row] = inverse;
  }
}

template <int kSegments, typename T>
__global__ void ShortInputGradientKernel(LayerNormInputs n, const T* x, const T* scale, const T* dy,
                                         const T* residual, T* dx) {
  const int64_t row = WarpRow(), width = n.width;
  if (row >= n.rows) return;
  const float center = n.mean[row], inverse = n.inverse_stddev[row];
  float normalized[kSegments][kVector], g[kSegments][kVector];
  LoadSegments(x + row * width, width, normalized);
  LoadSegments(dy + row * width, width, g);
  float sum = 0, products = 0;
  ForSegments<kSegments>(width, [&](int s, int64_t c) {
    float gamma[kVector];
    Load(scale, c, gamma);
    for (int i = 0; i < kVector; ++i) {
      g[s][i] *= gamma[i];
      normalized[s][i] = (normalized[s][i] - center) * inverse;
      sum += g[s][i];
      products += g[s][i] * normalized[s][i];
    }
  });
  const float mean_g = WarpReduce(sum, Plus{}) / static_cast<float>(width);
  const float mean_product = WarpReduce(products, Plus{}) / static_cast<float>(width);
  ForSegments<kSegments>(width, [&](int s, int64_t c) {
    float add[kVector] = {}, out[kVector];
    if (residual != nullptr) Load(residual, row * width + c, add);
    for (int i = 0; i < kVector; ++i) {
      out[i] = add[i] + inverse * (g[s][i] - mean_g - normalized[s][i] * mean_product);
    }
    Store({dx, kDTypeOf<T>}, row * width + c, out);
  });
}

// Whether such a kernel has rows of this width.
bool IsShort(int64_t width) { return width % kVector == 0 && width <= kMostSegments * kSegment; }

// f(std::integral_constant of the segments that rows of this width have), up to kMost, 4 or 8;
// beyond four segments there are kernels for eight alone, since each takes long to compile.
template <int kMost = kMostSegments, int kLeast = 1, typename Function>
cudaError_t WithSegments(int64_t width, Function&& f) {
  if constexpr (kLeast < kMost) {
    constexpr int kNext = kLeast < 4 ? kLeast + 1 : 2 * kLeast;
    if (width > kLeast * kSegment) return WithSegments<kMost, kNext>(width, f);
  }
  return f(std::integral_constant<int, kLeast>());
}

// Does what LoadSegments does, but leaves the elements in their own type: rows are converted where
// they are used, so that 16 bits take half the registers.
template <int kSegments, typename T>
__device__ __forceinline__ void HoldSegments(const T* row, int64_t width,
                                             T (&out)[kSegments][kVector]) {
  ForAllSegments<kSegments>(width, [&](int s, int64_t c) {
    for (int i = 0; i < static_cast<int>(sizeof(out[s]) / sizeof(uint4)); ++i) {
      reinterpret_cast<uint4*>(out[s])[i] = reinterpret_cast<const uint4*>(row + c)[i];
    }
  });
}

// Rows of up to this many segments have all gradients in one pass: a lane has its columns of a row
// and their sums in registers. Wider rows leave none for them.
template <typename T>
constexpr int kMostSummedSegments = sizeof(T) == sizeof(float) ? 4 : 8;

// Writes dx, and partial[chunk][2][width] with the bits that PartColumnsKernel writes for
// GradientTerms. A block takes a chunk of rows. Each of its warps takes every kWarps-th row of the
// chunk, one after the other: it loads x and dy of the row once, writes dx, and adds to the sums of
// its columns, as a row of threads does in PartColumnsKernel. At most kFloatRows rows of a chunk go
// into one sum.
template <int kSegments, typename T>
__global__ void __launch_bounds__(kThreads)
    GradientsKernel(LayerNormInputs n, const T* x, const T* scale, const T* dy, const T* residual,
                    T* dx, ColumnBlocks blocks, double* partial) {
  constexpr int kWarps = kThreads / kWarp;
  static_assert(kWarps == ColumnBlocks::kDown);
  __shared__ float of_warps[2][kWarps][kSegment];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  const int64_t width = n.width, chunk = blockIdx.x, begin = chunk * blocks.rows_of_chunk;
  const int64_t end = begin + blocks.rows_of_chunk < n.rows ? begin + blocks.rows_of_chunk : n.rows;
  float sums[2][kSegments][kVector] = {};
  for (int64_t row = begin + warp; row < end; row += kWarps) {
    const float center = n.mean[row], inverse = n.inverse_stddev[row];
    alignas(16) T in[kSegments][kVector];
    alignas(16) T slopes[kSegments][kVector];
    HoldSegments(x + row * width, width, in);
    HoldSegments(dy + row * width, width, slopes);
    float sum = 0, products = 0;
    ForSegments<kSegments>(width, [&](int s, int64_t c) {
      float gamma[kVector];
      Load(scale, c, gamma);
      for (int i = 0; i < kVector; ++i) {
        const float slope = ToFloat(slopes[s][i]), g = slope * gamma[i];
        const float normalized = (ToFloat(in[s][i]) - center) * inverse;
        sum += g;
        products += g * normalized;
        sums[0][s][i] += slope * normalized;
        sums[1][s][i] += slope;
      }
    });
    const float mean_g = WarpReduce(sum, Plus{}) / static_cast<float>(width);
    const float mean_product = WarpReduce(products, Plus{}) / static_cast<float>(width);
    ForSegments<kSegments>(width, [&](int s, int64_t c) {
      float gamma[kVector], add[kVector] = {}, out[kVector];
      Load(scale, c, gamma);
      if (residual != nullptr) Load(residual, row * width + c, add);
      for (int i = 0; i < kVector; ++i) {
        const float g = ToFloat(slopes[s][i]) * gamma[i];
        const float normalized = (ToFloat(in[s][i]) - center) * inverse;
        out[i] = add[i] + inverse * (g - mean_g - normalized * mean_product);
      }
      Store({dx, kDTypeOf<T>}, row * width + c, out);
    });
  }
  // A thread adds up a column of each segment, of the warps in their order.
#pragma unroll
  for (int s = 0; s < kSegments; ++s) {
    for (int which = 0; which < 2; ++which) {
      for (int i = 0; i < kVector; ++i) {
        of_warps[which][warp][lane * kVector + i] = sums[which][s][i];
      }
    }
    __syncthreads();
    const int64_t c = s * kSegment + thread;
    for (int which = 0; which < 2; ++which) {
      double total = 0;
      for (int k = 0; k < kWarps; ++k) total += of_warps[which][k][thread];
      if (c < width) partial[(chunk * 2 + which) * width + c] = total;
    }
    __syncthreads();
  }
}

// Whether GradientsKernel has such rows, which are cut into `blocks`.
bool IsOnePass(const LayerNormInputs& n, const ColumnBlocks& blocks) {
  const int64_t segments =
      n.x.dtype == DType::kF32 ? kMostSummedSegments<float> : kMostSummedSegments<__half>;
  return n.rows > 0 && n.width % kVector == 0 && n.width <= segments * kSegment &&
         blocks.rows_of_chunk <= kFloatRows * ColumnBlocks::kDown;
}

template <typename T>
struct GradientTerms {
  static constexpr int kSums = 2;
  LayerNormInputs n;
  const T *x, *dy;
  template <int kCount>
  __device__ void operator()(int64_t row, int64_t column, float (&out)[2][kCount]) const {
    const int64_t at = row * n.width + column;
    const float center = n.mean[row], inverse = n.inverse_stddev[row];
    float in[kCount];
    Load(x, at, in);
    Load(dy, at, out[1]);
    for (int i = 0; i < kCount; ++i) out[0][i] = out[1][i] * ((in[i] - center) * inverse);
  }
};

}  // namespace

cudaError_t LayerNorm(cudaStream_t stream, int64_t rows, int64_t width, Array x, Array scale,
                      Array shift, float epsilon, Array y, float* mean, float* inverse_stddev) {
  if (rows == 0) return cudaSuccess;
  if (IsShort(width)) {
    return WithType(x, [&](const auto* data) {
      using T = ElementOf<decltype(data)>;
      return WithSegments(width, [&](auto segments) {
        const auto kernel = ShortForwardKernel<segments.value, T>;
        kernel<<<BlocksFor(rows, kRowsOfBlock), kRowsOfBlock * kWarp, 0, stream>>>(
            rows, width, data, Elements<T>(scale), Elements<T>(shift), epsilon, Elements<T>(y),
            mean, inverse_stddev);
        return cudaGetLastError();
      });
    });
  }
  const auto kernel = width % kVector == 0 ? ForwardKernel<kVector> : ForwardKernel<1>;
  kernel<<<BlocksFor(rows, kRowsOfBlock), kRowsOfBlock * kWarp, 0, stream>>>(
      rows, width, x, scale, shift, epsilon, y, mean, inverse_stddev);
  return cudaGetLastError();
}

cudaError_t LayerNormInputGradient(cudaStream_t stream, LayerNormInputs inputs, Array residual,
                                   Array dx) {
  if (inputs.rows == 0) return cudaSuccess;
  if (IsShort(inputs.width)) {
    return WithType(inputs.x, [&](const auto* x) {
      using T = ElementOf<decltype(x)>;
      return WithSegments(inputs.width, [&](auto segments) {
        const auto kernel = ShortInputGradientKernel<segments.value, T>;
        kernel<<<BlocksFor(inputs.rows, kRowsOfBlock), kRowsOfBlock * kWarp, 0, stream>>>(
            inputs, x, Elements<T>(inputs.scale), Elements<T>(inputs.dy), Elements<T>(residual),
            Elements<T>(dx));
        return cudaGetLastError();
      });
    });
  }
  const auto kernel =
      inputs.width % kVector == 0 ? InputGradientKernel<kVector> : InputGradientKernel<1>;
  kernel<<<BlocksFor(inputs.rows, kRowsOfBlock), kRowsOfBlock * kWarp, 0, stream>>>(inputs,
                                                                                    residual, dx);
  return cudaGetLastError();
}

cudaError_t LayerNormSums(cudaStream_t stream, LayerNormInputs inputs, double* scratch,
                          double* sums) {
  return WithType(inputs.x, [&](const auto* x) {
    using T = ElementOf<decltype(x)>;
    return SumColumns(stream, inputs.rows, inputs.width,
                      GradientTerms<T>{inputs, x, Elements<T>(inputs.dy)}, scratch, sums);
  });
}

cudaError_t LayerNormGradients(cudaStream_t stream, LayerNormInputs inputs, Array residual,
                               Array dx, double* scratch, double* sums) {
  const ColumnBlocks blocks(inputs.rows, inputs.width, kVector);
  if (!IsOnePass(inputs, blocks)) {
    const cudaError_t error = LayerNormInputGradient(stream, inputs, residual, dx);
    return error != cudaSuccess ? error : LayerNormSums(stream, inputs, scratch, sums);
  }
  const cudaError_t error = WithType(inputs.x, [&](const auto* x) {
    using T = ElementOf<decltype(x)>;
    return WithSegments<kMostSummedSegments<T>>(inputs.width, [&](auto segments) {
      const auto kernel = GradientsKernel<segments.value, T>;
      kernel<<<blocks.chunks, kThreads, 0, stream>>>(inputs, x, Elements<T>(inputs.scale),
                                                     Elements<T>(inputs.dy), Elements<T>(residual),
                                                     Elements<T>(dx), blocks, scratch);
      return cudaGetLastError();
    });
  });
  if (error != cudaSuccess) return error;
  return AddChunks(stream, blocks.chunks, 2 * inputs.width, scratch, sums);
}

}  // namespace lockstep::cuda
