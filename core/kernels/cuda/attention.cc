// Causal self-attention.

#include "core/kernels/cuda/attention.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/cuda/error.h"
#include "core/kernels/cuda/cuda_kernels.h"
#include "core/kernels/cuda/span.h"
#include "glog/logging.h"

namespace lockstep {

using cuda::Of;

namespace {

// What a launch can carry in its second and third dimension: heads and samples.
constexpr int64_t kMost = 65535;

void CheckAttention(const Attention& attention, const Tensor& qkv) {
  CHECK_EQ(qkv.shape()[2], attention.packed_width()) << qkv.shape();
  if (attention.documents.first != nullptr) {
    throw StatusException(
        absl::UnimplementedError("attention on the GPU: there are no masks of documents"));
  }
  if (attention.group() > 1) {
    throw StatusException(absl::UnimplementedError(
        absl::StrCat("attention on the GPU: ", attention.heads_of_keys(), " heads of keys for ",
                     attention.heads, " heads of queries; there must be as many")));
  }
  if (attention.head_width > cuda::kWidestHead) {
    throw StatusException(absl::UnimplementedError(
        absl::StrCat("attention on the GPU: heads of ", attention.head_width,
                     " elements; there are kernels for up to ", cuda::kWidestHead)));
  }
  if (qkv.shape()[0] > kMost || attention.heads > kMost) {
    throw StatusException(absl::UnimplementedError(
        absl::StrCat("attention on the GPU: ", qkv.shape()[0], " samples of ", attention.heads,
                     " heads; there can be ", kMost, " of either")));
  }
}

}  // namespace

void CudaKernels::AttentionForward(const Attention& attention, const Tensor& qkv, const Tensor& y,
                                   const Tensor& log_sum_exp) {
  Span span(this);
  CheckAttention(attention, qkv);
  if (qkv.elements() == 0) return;
  LS_CUDA(cuda::AttentionForward(stream(), attention, qkv.shape()[0], qkv.shape()[1], Of(qkv),
                                 Of(y), log_sum_exp.data<float>()));
}

void CudaKernels::AttentionBackward(const Attention& attention, const Tensor& qkv, const Tensor& y,
                                    const Tensor& log_sum_exp, const Tensor& dy,
                                    const Tensor& dqkv) {
  Span span(this);
  CheckAttention(attention, qkv);
  if (qkv.elements() == 0) return;
  const Tensor products = Workspace(log_sum_exp.shape());
  LS_CUDA(cuda::AttentionBackward(stream(), attention, qkv.shape()[0], qkv.shape()[1], Of(qkv),
                                  Of(y), log_sum_exp.data<float>(), Of(dy), products.data<float>(),
                                  Of(dqkv)));
}

}  // namespace lockstep
