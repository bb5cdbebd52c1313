// Cross entropy over rows of logits, whole and split over ranks; shapes and dtypes as in
// core/kernels/kernels.h.

#pragma once

#include <cstdint>

#include "core/kernels/cuda/array.h"
#include "cuda_runtime_api.h"

namespace lockstep::cuda {

// Logits[rows, columns], of which the first `count` columns are classes: column c is class
// first + c. Further columns are padding.
struct ClassLogits {
  int64_t rows, columns;
  Array logits;
  int64_t first, count;
};

// Computes the loss over all classes. `dlogits` may be null, or the logits.
cudaError_t SoftmaxCrossEntropy(cudaStream_t stream, ClassLogits x, const int32_t* targets,
                                float factor, float* losses, Array dlogits);

// Counts the rows whose largest logit, the first of equal ones, is at the target, and adds their
// number to correct[0].
cudaError_t CountCorrect(cudaStream_t stream, ClassLogits x, const int32_t* targets,
                         unsigned long long* correct);

// Steps of a cross entropy whose classes are split over ranks. Each call sees the classes of one
// rank.
cudaError_t LargestLogits(cudaStream_t stream, ClassLogits x, float* largest, int32_t* where);
cudaError_t SumExponentials(cudaStream_t stream, ClassLogits x, const float* largest,
                            const int32_t* targets, float* sums, float* gaps);
cudaError_t SplitCrossEntropy(cudaStream_t stream, ClassLogits x, const float* largest,
                              const float* sums, const float* gaps, const int32_t* targets,
                              float factor, float* losses, Array dlogits);

}  // namespace lockstep::cuda
