// What all that stands on cuDNN shares.

#pragma once

#include <cudnn.h>  // NVIDIA's: in quotation marks it would be this file

#include "core/base/status.h"
#include "core/cuda/context.h"
#include "core/cuda/libraries/libraries.h"
#include "core/kernels/cuda/images.h"
#include "core/tensor/tensor.h"

// Throws a StatusException if the call, a cudnnStatus_t, fails.
#define LS_CUDNN(...) lockstep::cuda::ThrowIfCudnnFailed((__VA_ARGS__), #__VA_ARGS__, __FILE__)

namespace lockstep::cuda {

void ThrowIfCudnnFailed(cudnnStatus_t status, const char* call, const char* file);

// A rank's cuDNN, which works on the stream of its context.
class Cudnn {
 public:
  // The context outlives it.
  explicit Cudnn(const CudaContext& context) : context_(context) {}
  ~Cudnn();
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  // Made by the first call: a transformer needs none.
  cudnnHandle_t handle();

 private:
  const CudaContext& context_;
  cudnnHandle_t handle_ = nullptr;
};

// One of cuDNN's descriptors, which its functions take it for.
template <typename Handle, cudnnStatus_t (*kCreate)(Handle*), cudnnStatus_t (*kDestroy)(Handle)>
class CudnnDescriptor {
 public:
  CudnnDescriptor() {
    ThrowIfError(LoadCudnn());
    LS_CUDNN(kCreate(&handle_));
  }
  ~CudnnDescriptor() { kDestroy(handle_); }
  CudnnDescriptor(const CudnnDescriptor&) = delete;
  CudnnDescriptor& operator=(const CudnnDescriptor&) = delete;

  operator Handle() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};

using TensorDescriptor = CudnnDescriptor<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor,
                                         cudnnDestroyTensorDescriptor>;

// fp32, fp16 or bf16.
cudnnDataType_t CudnnType(DType dtype);

// The extents of a tensor of rank 4.
Images ImagesOf(const Tensor& x);

// Images in channels-last layout. Throws a StatusException, Unimplemented, where they have 2^31
// elements or more: cuDNN's offsets have 32 bits.
void Describe(const TensorDescriptor& descriptor, DType dtype, const Images& images);

}  // namespace lockstep::cuda
