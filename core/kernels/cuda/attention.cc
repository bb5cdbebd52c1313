// Causal self-attention.

#include "core/kernels/cuda/attention.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/cuda/error.h"
#include "core/kernels/cuda/attention_call.h"
#include "core/kernels/cuda/attention_plans.h"
#include "core/kernels/cuda/cuda_kernels.h"
#include "core/kernels/cuda/span.h"
#include "glog/logging.h"

namespace lockstep {

using cuda::Of;

namespace {

// What a launch can carry in its second and third dimension: heads and samples.
constexpr int64_t kMost = 65535;

// The shared memory in bytes that blocks on the current GPU may ask for.
int64_t SharedBytesOfBlocks() {
  int device = 0, bytes = 0;
  LS_CUDA(cudaGetDevice(&device));
  LS_CUDA(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return bytes;
}

void CheckSequences(const Attention& attention, const Tensor& qkv) {
  CHECK_EQ(qkv.shape()[2], attention.packed_width()) << qkv.shape();
  cuda::CheckAttention(attention, qkv.shape()[0]);
}

}  // namespace

void cuda::CheckAttention(const Attention& attention, int64_t sequences) {
  if (attention.head_width > kWidestHead) {
    throw StatusException(absl::UnimplementedError(
        absl::StrCat("attention on the GPU: heads of ", attention.head_width,
                     " elements; there are kernels for up to ", kWidestHead)));
  }
  const int64_t shared_bytes = AttentionSharedBytes(attention.head_width);
  if (const int64_t most = SharedBytesOfBlocks(); shared_bytes > most) {
    int64_t widest = attention.head_width;
    while (AttentionSharedBytes(widest) > most) --widest;
    throw StatusException(absl::UnimplementedError(
        absl::StrCat("attention on the GPU: heads of ", attention.head_width, " elements need ",
                     shared_bytes, " bytes of shared memory, and a block has at most ", most,
                     " on this GPU; heads have up to ", widest, " elements there")));
  }
  if (sequences > kMost || attention.heads > kMost) {
    throw StatusException(absl::UnimplementedError(
        absl::StrCat("attention on the GPU: ", sequences, " samples of ", attention.heads,
                     " heads; there can be ", kMost, " of either")));
  }
}

cuda::AttentionOnGpu::AttentionOnGpu(Kernels& kernels, const Attention& attention, int64_t samples,
                                     int64_t time)
    : attention_(attention) {
  Documents& documents = attention_.documents;
  if (documents.first == nullptr) return;
  CHECK_EQ(documents.time, time);
  first_ = kernels.Empty({samples, time}, DType::kI32, MemoryClass::kWorkspace);
  kernels.CopyFromHost(documents.first, first_);
  documents.first = first_.data<int32_t>();
}

void CudaKernels::AttentionForward(const Attention& attention, const Tensor& qkv, const Tensor& y,
                                   const Tensor& log_sum_exp) {
  Span span(this);
  CheckSequences(attention, qkv);
  if (qkv.elements() == 0) return;
  if (attention_plans_->Forward(attention, {.qkv = qkv, .y = y, .log_sum_exp = log_sum_exp}))
    return;
  const cuda::AttentionOnGpu on_gpu(*this, attention, qkv.shape()[0], qkv.shape()[1]);
  LS_CUDA(cuda::AttentionForward(stream(), on_gpu.attention(), qkv.shape()[0], qkv.shape()[1],
                                 Of(qkv), Of(y), log_sum_exp.data<float>()));
}

void CudaKernels::AttentionBackward(const Attention& attention, const Tensor& qkv, const Tensor& y,
                                    const Tensor& log_sum_exp, const Tensor& dy,
                                    const Tensor& dqkv) {
  Span span(this);
  CheckSequences(attention, qkv);
  if (qkv.elements() == 0) return;
  const cuda::AttentionTensors tensors = {
      .qkv = qkv, .y = y, .log_sum_exp = log_sum_exp, .dy = dy, .dqkv = dqkv};
  if (attention_plans_->Backward(attention, tensors)) return;
  const Tensor products = Workspace(log_sum_exp.shape());
  const cuda::AttentionOnGpu on_gpu(*this, attention, qkv.shape()[0], qkv.shape()[1]);
  LS_CUDA(cuda::AttentionBackward(stream(), on_gpu.attention(), qkv.shape()[0], qkv.shape()[1],
                                  Of(qkv), Of(y), log_sum_exp.data<float>(), Of(dy),
                                  products.data<float>(), Of(dqkv)));
}

}  // namespace lockstep
