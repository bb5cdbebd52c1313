// Descriptors of cuDNN's graph API: tensors, operations, engines and plans.

#pragma once

#include <cudnn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace lockstep::cuda {

// The type of an attribute's elements, as cuDNN wants it named beside them.
inline cudnnBackendAttributeType_t AttributeTypeOf(int64_t) { return CUDNN_TYPE_INT64; }
inline cudnnBackendAttributeType_t AttributeTypeOf(float) { return CUDNN_TYPE_FLOAT; }
inline cudnnBackendAttributeType_t AttributeTypeOf(bool) { return CUDNN_TYPE_BOOLEAN; }
inline cudnnBackendAttributeType_t AttributeTypeOf(void*) { return CUDNN_TYPE_VOID_PTR; }
inline cudnnBackendAttributeType_t AttributeTypeOf(cudnnHandle_t) { return CUDNN_TYPE_HANDLE; }
inline cudnnBackendAttributeType_t AttributeTypeOf(cudnnDataType_t) { return CUDNN_TYPE_DATA_TYPE; }
inline cudnnBackendAttributeType_t AttributeTypeOf(cudnnConvolutionMode_t) {
  return CUDNN_TYPE_CONVOLUTION_MODE;
}
inline cudnnBackendAttributeType_t AttributeTypeOf(cudnnPointwiseMode_t) {
  return CUDNN_TYPE_POINTWISE_MODE;
}
inline cudnnBackendAttributeType_t AttributeTypeOf(cudnnBackendHeurMode_t) {
  return CUDNN_TYPE_HEUR_MODE;
}
inline cudnnBackendAttributeType_t AttributeTypeOf(cudnnBackendNumericalNote_t) {
  return CUDNN_TYPE_NUMERICAL_NOTE;
}

// A descriptor of cuDNN's. Its attributes are set, then it is finalized, and then other descriptors
// may be set from it. Where cuDNN refuses a call, a StatusException, Unimplemented, says why.
class GraphDescriptor {
 public:
  // cuDNN's library is loaded (core/cuda/libraries).
  explicit GraphDescriptor(cudnnBackendDescriptorType_t type);
  ~GraphDescriptor();
  GraphDescriptor(GraphDescriptor&& other) noexcept
      : type_(other.type_), handle_(std::exchange(other.handle_, nullptr)) {}
  GraphDescriptor& operator=(GraphDescriptor&&) = delete;

  cudnnBackendDescriptor_t handle() const { return handle_; }

  void Set(cudnnBackendAttributeName_t name, const GraphDescriptor& value) {
    SetElements(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.handle_);
  }
  void Set(cudnnBackendAttributeName_t name, std::initializer_list<const GraphDescriptor*> values);
  template <typename T>
  void Set(cudnnBackendAttributeName_t name, const T& value) {
    SetElements(name, AttributeTypeOf(value), 1, &value);
  }
  template <typename T, size_t kCount>
  void Set(cudnnBackendAttributeName_t name, const std::array<T, kCount>& values) {
    SetElements(name, AttributeTypeOf(values[0]), kCount, values.data());
  }

  void Finalize();
  // Finalizes what cuDNN may not support; returns whether it does.
  [[nodiscard]] bool TryFinalize() { return cudnnBackendFinalize(handle_) == CUDNN_STATUS_SUCCESS; }

  // All elements of an attribute of a finalized descriptor.
  template <typename T>
  std::vector<T> Get(cudnnBackendAttributeName_t name) const {
    std::vector<T> values(static_cast<size_t>(GetElements(name, AttributeTypeOf(T()), 0, nullptr)));
    const int64_t wanted = static_cast<int64_t>(values.size());
    GetElements(name, AttributeTypeOf(T()), wanted, values.data());
    return values;
  }
  // The same for an attribute of descriptors of `type`.
  std::vector<GraphDescriptor> GetDescriptors(cudnnBackendAttributeName_t name,
                                              cudnnBackendDescriptorType_t type) const;

 private:
  void SetElements(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   int64_t count, const void* elements);
  // Writes at most `wanted` elements, and returns how many there are.
  int64_t GetElements(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                      int64_t wanted, void* elements) const;

  const cudnnBackendDescriptorType_t type_;
  cudnnBackendDescriptor_t handle_ = nullptr;
};

}  // namespace lockstep::cuda
