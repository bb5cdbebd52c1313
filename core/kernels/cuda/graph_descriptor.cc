#include "core/kernels/cuda/graph_descriptor.h"

#include <array>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace lockstep::cuda {

namespace {

// `which`: the number of the attribute or of the descriptor's type, as cuDNN's header has it.
void ThrowIfRefused(cudnnStatus_t status, const char* what, int which) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 512> reason = {};
  cudnnGetLastErrorString(reason.data(), reason.size());
  throw StatusException(
      absl::UnimplementedError(absl::StrCat("cuDNN's graph API, ", what, " ", which, ": ",
                                            cudnnGetErrorString(status), " ", reason.data())));
}

}  // namespace

GraphDescriptor::GraphDescriptor(cudnnBackendDescriptorType_t type) : type_(type) {
  ThrowIfRefused(cudnnBackendCreateDescriptor(type, &handle_), "descriptor", type);
}

GraphDescriptor::~GraphDescriptor() {
  if (handle_ != nullptr) cudnnBackendDestroyDescriptor(handle_);
}

void GraphDescriptor::Finalize() {
  ThrowIfRefused(cudnnBackendFinalize(handle_), "descriptor", type_);
}

void GraphDescriptor::Set(cudnnBackendAttributeName_t name,
                          std::initializer_list<const GraphDescriptor*> values) {
  std::vector<cudnnBackendDescriptor_t> handles;
  for (const GraphDescriptor* value : values) handles.push_back(value->handle_);
  SetElements(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(handles.size()),
              handles.data());
}

void GraphDescriptor::SetElements(cudnnBackendAttributeName_t name,
                                  cudnnBackendAttributeType_t type, int64_t count,
                                  const void* elements) {
  ThrowIfRefused(cudnnBackendSetAttribute(handle_, name, type, count, elements), "attribute", name);
}

int64_t GraphDescriptor::GetElements(cudnnBackendAttributeName_t name,
                                     cudnnBackendAttributeType_t type, int64_t wanted,
                                     void* elements) const {
  int64_t count = 0;
  ThrowIfRefused(cudnnBackendGetAttribute(handle_, name, type, wanted, &count, elements),
                 "attribute", name);
  return count;
}

std::vector<GraphDescriptor> GraphDescriptor::GetDescriptors(
    cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type) const {
  const int64_t count = GetElements(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
  std::vector<GraphDescriptor> descriptors;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (int64_t i = 0; i < count; ++i) {
    descriptors.emplace_back(type);
    handles.push_back(descriptors.back().handle_);
  }
  const int64_t returned = GetElements(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, handles.data());
  while (static_cast<int64_t>(descriptors.size()) > returned) descriptors.pop_back();
  return descriptors;
}

}  // namespace lockstep::cuda
