// What cuDNN's descriptors hold, and what its calls on emulated GPUs have in common.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/cuda/emulation/elements.h"
#include "core/cuda/emulation/handles.h"
#include "cudnn.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

// [n, h, w, c]
struct EmulatedTensor {
  lockstep::emulation::ElementType type;
  int64_t n = 0, c = 0, h = 0, w = 0;

  int64_t elements() const { return n * c * h * w; }
  size_t bytes() const {
    return static_cast<size_t>(elements()) * lockstep::emulation::SizeOf(type);
  }
  bool operator==(const EmulatedTensor&) const = default;
  // Where channel 0 of a pixel lies.
  int64_t At(int64_t image, int64_t row, int64_t column) const {
    return ((image * h + row) * w + column) * c;
  }
};

// [k, h, w, c]
struct EmulatedFilter {
  lockstep::emulation::ElementType type;
  int64_t k = 0, c = 0, h = 0, w = 0;

  size_t bytes() const {
    return static_cast<size_t>(k * c * h * w) * lockstep::emulation::SizeOf(type);
  }
};

struct EmulatedConvolution {
  int pad_h = 0, pad_w = 0, stride_h = 1, stride_w = 1;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};

struct EmulatedActivation {
  cudnnActivationMode_t mode = CUDNN_ACTIVATION_IDENTITY;
};

namespace lockstep::emulation {

ElementType TypeOf(cudnnDataType_t type);

// Logs why, and keeps it for cudnnGetLastErrorString.
cudnnStatus_t RefuseDnn(cudnnStatus_t status, const std::string& why);

// Memory that a call reads or writes.
struct MemoryUse {
  const char* what;  // "reads x,"
  const void* address;
  size_t bytes;
};

// Queues `compute` on the handle's stream behind a check of its memory, where the workspace becomes
// NaN.
cudnnStatus_t QueueDnn(cudnnHandle_t handle, const char* name, std::vector<MemoryUse> uses,
                       void* workspace, size_t workspace_bytes, std::function<void()> compute);

inline float FloatAt(const void* number) { return *static_cast<const float*>(number); }

// All elements as fp32.
std::vector<float> LoadAll(ElementType type, const void* data, int64_t elements);
// data[i] = values[i] + beta data[i]
void StoreAll(ElementType type, const std::vector<float>& values, float beta, void* data);

}  // namespace lockstep::emulation
