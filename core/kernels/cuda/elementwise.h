// Arithmetic element by element: y may be one of the inputs. Each operand has a dtype of its own.

#pragma once

#include <cstdint>

#include "core/kernels/cuda/array.h"
#include "core/kernels/options.h"
#include "cuda_runtime_api.h"

namespace lockstep::cuda {

cudaError_t Fill(cudaStream_t stream, int64_t elements, float value, Array y);
// Between fp32, fp16 and bf16.
cudaError_t Cast(cudaStream_t stream, int64_t elements, Array x, Array y);
cudaError_t WidenToDouble(cudaStream_t stream, int64_t elements, const float* x, double* y);
cudaError_t NarrowToFloat(cudaStream_t stream, int64_t elements, const double* x, float* y);
cudaError_t Add(cudaStream_t stream, int64_t elements, Array a, Array b, Array y);
// y = max(a + b, 0), but NaN passes.
cudaError_t AddRelu(cudaStream_t stream, int64_t elements, Array a, Array b, Array y);
cudaError_t Multiply(cudaStream_t stream, int64_t elements, Array a, Array b, Array y);
cudaError_t Scale(cudaStream_t stream, int64_t elements, Array x, float factor, Array y);
// y += factor * x
cudaError_t AddScaled(cudaStream_t stream, int64_t elements, Array x, float factor, Array y);
cudaError_t Relu(cudaStream_t stream, int64_t elements, Array x, Array y);
cudaError_t ReluBackward(cudaStream_t stream, int64_t elements, Array y, Array dy, Array dx);
cudaError_t Gelu(cudaStream_t stream, int64_t elements, Array x, Array y);
cudaError_t GeluBackward(cudaStream_t stream, int64_t elements, Array x, Array dy, Array dx);
cudaError_t ApplyDropout(cudaStream_t stream, int64_t elements, Dropout dropout,
                         int64_t first_element, Array x, Array y);

}  // namespace lockstep::cuda
