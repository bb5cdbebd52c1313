#include "core/kernels/cuda/cudnn.h"

#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep::cuda {
namespace {

int Extent(int64_t extent) {
  CHECK_GT(extent, 0);
  return static_cast<int>(extent);
}

// Multiplies without overflow: each extent is at most the whole, which is bounded before the next.
bool HasAtMost(const Images& images, int64_t most) {
  int64_t elements = 1;
  for (const int64_t extent : {images.batch, images.height, images.width, images.channels}) {
    if (extent > most / elements) return false;
    elements *= extent;
    if (elements == 0) return true;
  }
  return true;
}

}  // namespace

void ThrowIfCudnnFailed(cudnnStatus_t status, const char* call, const char* file) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw StatusException(
      absl::InternalError(absl::StrCat(file, ": ", call, ": ", cudnnGetErrorString(status))));
}

Cudnn::~Cudnn() {
  if (handle_ != nullptr) cudnnDestroy(handle_);
}

cudnnHandle_t Cudnn::handle() {
  if (handle_ == nullptr) {
    ThrowIfError(LoadCudnn());
    LS_CUDNN(cudnnCreate(&handle_));
    LS_CUDNN(cudnnSetStream(handle_, context_.stream()));
  }
  return handle_;
}

cudnnDataType_t CudnnType(DType dtype) {
  CHECK(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16) << Name(dtype);
  return dtype == DType::kF32   ? CUDNN_DATA_FLOAT
         : dtype == DType::kF16 ? CUDNN_DATA_HALF
                                : CUDNN_DATA_BFLOAT16;
}

Images ImagesOf(const Tensor& x) {
  return {.batch = x.shape()[0],
          .height = x.shape()[1],
          .width = x.shape()[2],
          .channels = x.shape()[3]};
}

void Describe(const TensorDescriptor& descriptor, DType dtype, const Images& images) {
  if (!HasAtMost(images, std::numeric_limits<int>::max())) {
    throw StatusException(absl::UnimplementedError(
        absl::StrCat("cuDNN: images [", images.batch, ", ", images.height, ", ", images.width, ", ",
                     images.channels,
                     "] have 2^31 elements or more, which it cannot count; use smaller "
                     "micro-batches (cut.micro_batches or cut.shards)")));
  }
  LS_CUDNN(cudnnSetTensor4dDescriptor(descriptor, CUDNN_TENSOR_NHWC, CudnnType(dtype),
                                      Extent(images.batch), Extent(images.channels),
                                      Extent(images.height), Extent(images.width)));
}

}  // namespace lockstep::cuda
