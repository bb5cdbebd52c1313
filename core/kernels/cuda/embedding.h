// Rows looked up by token and by position; shapes and dtypes as in core/kernels/kernels.h.

#pragma once

#include <cstdint>

#include "core/kernels/cuda/array.h"
#include "cuda_runtime_api.h"

namespace lockstep::cuda {

cudaError_t Embedding(cudaStream_t stream, int64_t rows, int64_t width, const int32_t* ids,
                      Array table, Array y);

// dtable += dy summed by id: in row order in fp32, rounded once. Each row of dy looks for its like,
// so the time grows with rows^2; that is some hundredths of a language model's step.
cudaError_t EmbeddingBackward(cudaStream_t stream, int64_t rows, int64_t width, const int32_t* ids,
                              Array dy, Array dtable);

// y = ids - first where that is in [0, count), else -1.
cudaError_t LocalIds(cudaStream_t stream, int64_t rows, const int32_t* ids, int64_t first,
                     int64_t count, int32_t* y);

// y = x + table[0 .. time), where x and y are [batch, time, width].
cudaError_t AddPositions(cudaStream_t stream, int64_t batch, int64_t time, int64_t width, Array x,
                         Array table, Array y);
// dtable[0 .. time) += dy summed over the batch, in fp32, rounded once.
cudaError_t AddPositionsBackward(cudaStream_t stream, int64_t batch, int64_t time, int64_t width,
                                 Array dy, Array dtable);

}  // namespace lockstep::cuda
