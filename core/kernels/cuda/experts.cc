// Mixtures of experts.

#include "core/kernels/cuda/experts.h"

#include "core/cuda/error.h"
#include "core/kernels/cuda/cuda_kernels.h"
#include "core/kernels/cuda/span.h"
#include "glog/logging.h"

namespace lockstep {

using cuda::Of;

namespace {

void CheckRouting(const Routing& routing, const Tensor& logits, const Tensor& chosen) {
  CHECK(routing.chosen >= 1 && routing.chosen <= routing.experts)
      << routing.chosen << " of " << routing.experts << " experts";
  CHECK_EQ(logits.shape()[-1], routing.experts);
  CHECK(chosen.shape() == Shape({logits.shape().rows(), routing.chosen})) << chosen.shape();
}

// Null where there is no tensor.
float* FloatsOf(const Tensor& x) { return x.defined() ? x.data<float>() : nullptr; }

cuda::CombinedRows RowsOf(const Tensor& sums, const Tensor& places, const Tensor& weights) {
  const int64_t rows = sums.shape().rows();
  return {.rows = rows,
          .slots = rows == 0 ? 0 : places.elements() / rows,
          .width = sums.shape()[-1],
          .places = places.data<int32_t>(),
          .weights = FloatsOf(weights)};
}

}  // namespace

void CudaKernels::Route(const Routing& routing, const Tensor& logits, const Tensor& bias,
                        const Tensor& chosen, const Tensor& weights) {
  Span span(this);
  CheckRouting(routing, logits, chosen);
  LS_CUDA(cuda::Route(stream(), routing, logits.shape().rows(), Of(logits), FloatsOf(bias),
                      chosen.data<int32_t>(), weights.data<float>()));
}

void CudaKernels::RouteBackward(const Routing& routing, const Tensor& logits, const Tensor& chosen,
                                const Tensor& dweights, const Tensor& balance,
                                const Tensor& dlogits) {
  Span span(this);
  CheckRouting(routing, logits, chosen);
  LS_CUDA(cuda::RouteBackward(stream(), routing, logits.shape().rows(), Of(logits),
                              chosen.data<int32_t>(), dweights.data<float>(), FloatsOf(balance),
                              Of(dlogits)));
}

void CudaKernels::CombineRows(const Tensor& x, const Tensor& places, const Tensor& weights,
                              const Tensor& residual, const Tensor& sums) {
  Span span(this);
  LS_CUDA(
      cuda::CombineRows(stream(), RowsOf(sums, places, weights), Of(x), Of(residual), Of(sums)));
}

void CudaKernels::CombineRowsBackward(const Tensor& dsums, const Tensor& x, const Tensor& places,
                                      const Tensor& weights, const Tensor& dx,
                                      const Tensor& dweights) {
  Span span(this);
  LS_CUDA(cuda::CombineRowsBackward(stream(), RowsOf(dsums, places, weights), Of(dsums), Of(x),
                                    Of(dx), FloatsOf(dweights)));
}

}  // namespace lockstep
