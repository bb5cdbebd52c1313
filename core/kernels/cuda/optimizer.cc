#include "core/kernels/cuda/optimizer.h"

#include <cstddef>
#include <vector>

#include "core/cuda/error.h"
#include "core/kernels/cuda/cuda_kernels.h"
#include "core/kernels/cuda/span.h"
#include "glog/logging.h"

namespace lockstep {

using cuda::Of;

namespace {

std::vector<cuda::OptimizedArrays> ArraysOf(absl::Span<const Kernels::OptimizedTensor> tensors,
                                            size_t states) {
  std::vector<cuda::OptimizedArrays> result;
  result.reserve(tensors.size());
  for (const Kernels::OptimizedTensor& tensor : tensors) {
    const Tensor& parameter = tensor.parameter;
    CHECK_EQ(tensor.gradient.elements(), parameter.elements());
    CHECK(!tensor.copy.defined() || tensor.copy.elements() == parameter.elements());
    CHECK(parameter.dtype() == DType::kF32) << "a master in " << Name(parameter.dtype());
    cuda::OptimizedArrays arrays = {.elements = parameter.elements(),
                                    .gradient = Of(tensor.gradient),
                                    .parameter = parameter.data<float>(),
                                    .states = {},
                                    .copy = Of(tensor.copy),
                                    .decays = tensor.decays};
    for (size_t s = 0; s < states; ++s) {
      CHECK_EQ(tensor.states[s].elements(), parameter.elements());
      arrays.states[s] = tensor.states[s].data<float>();
    }
    result.push_back(arrays);
  }
  return result;
}

}  // namespace

void CudaKernels::UpdateParameters(const OptimizerRule& optimizer, const OptimizerStep& step,
                                   absl::Span<const OptimizedTensor> tensors) {
  Span span(this);
  LS_CUDA(cuda::UpdateParameters(stream(), optimizer, step,
                                 ArraysOf(tensors, StateNames(optimizer).size())));
}

}  // namespace lockstep
