#include "core/cuda/context.h"

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/cuda/device.h"
#include "core/cuda/error.h"
#include "glog/logging.h"

namespace lockstep {

absl::StatusOr<std::unique_ptr<CudaContext>> CudaContext::Create(int ordinal) {
  LS_ASSIGN_OR_RETURN(const int devices, cuda::CountDevices());
  CHECK_GE(ordinal, 0);
  CHECK_LT(ordinal, devices);
  LS_RETURN_IF_ERROR(cuda::CheckDevice(ordinal));
  LS_RETURN_IF_CUDA_ERROR(cudaSetDevice(ordinal));
  cudaStream_t stream = nullptr, copy_stream = nullptr;
  LS_RETURN_IF_CUDA_ERROR(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  LS_RETURN_IF_CUDA_ERROR(cudaStreamCreateWithFlags(&copy_stream, cudaStreamNonBlocking));
  return std::unique_ptr<CudaContext>(new CudaContext(ordinal, stream, copy_stream));
}

CudaContext::~CudaContext() {
  for (const cudaStream_t stream : {copy_stream_, stream_}) {
    for (const cudaError_t error : {cudaStreamSynchronize(stream), cudaStreamDestroy(stream)}) {
      if (error == cudaSuccess) continue;
      LOG(ERROR) << "cuda:" << ordinal_ << ": " << cudaGetErrorName(error);
    }
  }
}

void CudaContext::MakeCurrent() const { LS_CUDA(cudaSetDevice(ordinal_)); }

void CudaContext::Synchronize() const { LS_CUDA(cudaStreamSynchronize(stream_)); }

}  // namespace lockstep
