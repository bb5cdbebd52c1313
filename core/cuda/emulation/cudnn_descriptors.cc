#include "core/cuda/emulation/cudnn_descriptors.h"

#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace lockstep::emulation {

namespace {

// Why cuDNN refused the calling thread's last call that it refused.
thread_local std::string last_error;

}  // namespace

cudnnStatus_t RefuseDnn(cudnnStatus_t status, const std::string& why) {
  last_error = why;
  LOG(ERROR) << "emulated cuDNN: " << cudnnGetErrorString(status) << ": " << why;
  return status;
}

cudnnStatus_t QueueDnn(cudnnHandle_t handle, const char* name, std::vector<MemoryUse> uses,
                       void* workspace, size_t workspace_bytes, std::function<void()> compute) {
  if (handle->stream == nullptr) {
    return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED, "the default stream is not emulated");
  }
  const int device = handle->stream->stream->device;
  if (device != CurrentDevice()) {
    return RefuseDnn(CUDNN_STATUS_EXECUTION_FAILED,
                     absl::StrCat(name, ": the handle is not one of the calling thread's GPU"));
  }
  if (workspace_bytes > 0) uses.push_back({"uses workspace,", workspace, workspace_bytes});
  QueueOn(
      handle->stream,
      {.name = name,
       .run = [=, uses = std::move(uses), compute = std::move(compute)]() -> std::optional<Fault> {
         for (const MemoryUse& use : uses) {
           auto fault = JudgeAccess(name, device, use.what, use.address, use.bytes);
           if (fault.has_value()) return fault;
         }
         if (workspace_bytes > 0) std::memset(workspace, 0xff, workspace_bytes);
         compute();
         return std::nullopt;
       }});
  return CUDNN_STATUS_SUCCESS;
}

std::vector<float> LoadAll(ElementType type, const void* data, int64_t elements) {
  std::vector<float> values(static_cast<size_t>(elements));
  for (int64_t i = 0; i < elements; ++i) {
    values[static_cast<size_t>(i)] = LoadElement(type, data, i);
  }
  return values;
}

void StoreAll(ElementType type, const std::vector<float>& values, float beta, void* data) {
  for (size_t i = 0; i < values.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const float before = beta == 0 ? 0 : beta * LoadElement(type, data, at);
    StoreElement(type, data, at, values[i] + before);
  }
}

ElementType TypeOf(cudnnDataType_t type) {
  return type == CUDNN_DATA_FLOAT  ? ElementType::kF32
         : type == CUDNN_DATA_HALF ? ElementType::kF16
                                   : ElementType::kBF16;
}

namespace {

template <typename T>
cudnnStatus_t Create(T** made) {
  *made = new T{};
  return CUDNN_STATUS_SUCCESS;
}

template <typename T>
cudnnStatus_t Destroy(T* made) {
  delete made;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace
}  // namespace lockstep::emulation

using lockstep::emulation::Create;
using lockstep::emulation::Destroy;
using lockstep::emulation::last_error;
using lockstep::emulation::RefuseDnn;
using lockstep::emulation::TypeOf;

const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS:
      return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED:
      return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM:
      return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_BAD_PARAM_NULL_POINTER:
      return "CUDNN_STATUS_BAD_PARAM_NULL_POINTER";
    case CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER:
      return "CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER";
    case CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED:
      return "CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED";
    case CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE:
      return "CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE";
    case CUDNN_STATUS_NOT_SUPPORTED:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_NOT_SUPPORTED_SHAPE:
      return "CUDNN_STATUS_NOT_SUPPORTED_SHAPE";
    case CUDNN_STATUS_EXECUTION_FAILED:
      return "CUDNN_STATUS_EXECUTION_FAILED";
  }
  return "a status that cuDNN does not have";
}

void cudnnGetLastErrorString(char* message, size_t max_size) {
  if (max_size == 0) return;
  const size_t length = last_error.copy(message, max_size - 1);
  message[length] = 0;
}

size_t cudnnGetVersion() { return 91900; }

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) { return Create(handle); }
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { return Destroy(handle); }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* tensor) {
  return Create(tensor);
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) {
  return Destroy(tensor);
}
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  constexpr int64_t kMostElements = int64_t{1} << 31;
  if (format != CUDNN_TENSOR_NHWC) {
    return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED, "only NHWC is emulated");
  }
  if (n <= 0 || c <= 0 || h <= 0 || w <= 0) return CUDNN_STATUS_BAD_PARAM;
  *tensor = {.type = TypeOf(type), .n = n, .c = c, .h = h, .w = w};
  if (tensor->elements() >= kMostElements) {
    return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED, "a tensor of 2^31 elements or more");
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* filter) {
  return Create(filter);
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) {
  return Destroy(filter);
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  if (format != CUDNN_TENSOR_NHWC) {
    return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED, "only NHWC is emulated");
  }
  *filter = {.type = TypeOf(type), .k = k, .c = c, .h = h, .w = w};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* convolution) {
  return Create(convolution);
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution) {
  return Destroy(convolution);
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convolution, int pad_h,
                                              int pad_w, int stride_h, int stride_w, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute) {
  const bool is_emulated = dilation_h == 1 && dilation_w == 1 && mode == CUDNN_CROSS_CORRELATION &&
                           compute == CUDNN_DATA_FLOAT;
  if (!is_emulated) return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED, "such a convolution");
  *convolution = {.pad_h = pad_h, .pad_w = pad_w, .stride_h = stride_h, .stride_w = stride_w};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution,
                                          cudnnMathType_t math) {
  convolution->math = math;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t* activation) {
  return Create(activation);
}
cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t activation) {
  return Destroy(activation);
}
cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t activation,
                                           cudnnActivationMode_t mode, cudnnNanPropagation_t,
                                           double) {
  activation->mode = mode;
  return CUDNN_STATUS_SUCCESS;
}
