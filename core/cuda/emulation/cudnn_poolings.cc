// cuDNN's pooling on emulated GPUs. Padding counts as the lowest finite number, as with cuDNN.

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/cuda/emulation/cudnn_descriptors.h"

namespace lockstep::emulation {
namespace {

bool IsMaximum(const EmulatedPooling& pooling) {
  return pooling.mode == CUDNN_POOLING_MAX_DETERMINISTIC;
}

const char* Judge(const EmulatedPooling& p, const EmulatedTensor& x, const EmulatedTensor& y) {
  if (!IsMaximum(p) && p.mode != CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING) {
    return "a mode that is not emulated, or does not repeat its bits";
  }
  const auto output = [](int64_t extent, int64_t kernel, int64_t pad, int64_t stride) {
    return (extent + 2 * pad - kernel) / stride + 1;
  };
  const bool fits = x.type == y.type && x.n == y.n && x.c == y.c &&
                    y.h == output(x.h, p.height, p.pad_h, p.stride_h) &&
                    y.w == output(x.w, p.width, p.pad_w, p.stride_w);
  if (!fits) return "shapes that do not fit";
  // "Padding must be less than the window."
  return p.pad_h < p.height && p.pad_w < p.width ? nullptr : "padding of a window or more";
}

// The pixels of x that one of y's sees, rows [top, bottom) and columns [left, right).
struct Window {
  int64_t top, bottom, left, right;

  Window(const EmulatedPooling& p, const EmulatedTensor& x, int64_t row, int64_t column)
      : top(std::max<int64_t>(row * p.stride_h - p.pad_h, 0)),
        bottom(std::min(row * p.stride_h - p.pad_h + p.height, x.h)),
        left(std::max<int64_t>(column * p.stride_w - p.pad_w, 0)),
        right(std::min(column * p.stride_w - p.pad_w + p.width, x.w)) {}
  int64_t size() const { return (bottom - top) * (right - left); }
  bool IsPadded(const EmulatedPooling& p) const { return size() < p.height * p.width; }
};

// f(window, image, channel, y's element) for all elements of y.
template <typename Function>
void ForOutputs(const EmulatedPooling& p, const EmulatedTensor& x, const EmulatedTensor& y,
                Function&& f) {
  for (int64_t n = 0; n < y.n; ++n) {
    for (int64_t row = 0; row < y.h; ++row) {
      for (int64_t column = 0; column < y.w; ++column) {
        const Window window(p, x, row, column);
        for (int64_t c = 0; c < y.c; ++c) f(window, n, c, y.At(n, row, column) + c);
      }
    }
  }
}

// f(x's element) for those in the window, in order.
template <typename Function>
void ForElements(const Window& window, const EmulatedTensor& x, int64_t image, int64_t channel,
                 Function&& f) {
  for (int64_t row = window.top; row < window.bottom; ++row) {
    for (int64_t column = window.left; column < window.right; ++column) {
      f(static_cast<size_t>(x.At(image, row, column) + channel));
    }
  }
}

void Forward(const EmulatedPooling& p, const EmulatedTensor& x, const void* x_data,
             const EmulatedTensor& y, void* y_data) {
  const std::vector<float> in = LoadAll(x.type, x_data, x.elements());
  std::vector<float> out(static_cast<size_t>(y.elements()));
  ForOutputs(p, x, y, [&](const Window& window, int64_t image, int64_t channel, int64_t at) {
    using Limits = std::numeric_limits<float>;
    float largest = window.IsPadded(p) ? Limits::lowest() : -Limits::infinity(), sum = 0;
    ForElements(window, x, image, channel, [&](size_t i) {
      if (in[i] > largest || std::isnan(in[i])) largest = in[i];
      sum += in[i];
    });
    out[static_cast<size_t>(at)] = IsMaximum(p) ? largest : sum / static_cast<float>(window.size());
  });
  StoreAll(y.type, out, 0, y_data);
}

void Backward(const EmulatedPooling& p, const EmulatedTensor& x, const void* x_data,
              const EmulatedTensor& y, const void* y_data, const void* dy_data, void* dx_data) {
  const std::vector<float> in = LoadAll(x.type, x_data, x.elements());
  const std::vector<float> largest = LoadAll(y.type, y_data, y.elements());
  const std::vector<float> slopes = LoadAll(y.type, dy_data, y.elements());
  std::vector<float> out(in.size());
  ForOutputs(p, x, y, [&](const Window& window, int64_t image, int64_t channel, int64_t at) {
    const float slope = slopes[static_cast<size_t>(at)];
    bool is_found = false;
    ForElements(window, x, image, channel, [&](size_t i) {
      if (!IsMaximum(p)) {
        out[i] += slope / static_cast<float>(window.size());
      } else if (!is_found && in[i] == largest[static_cast<size_t>(at)]) {
        out[i] += slope;
        is_found = true;
      }
    });
  });
  StoreAll(x.type, out, 0, dx_data);
}

cudnnStatus_t JudgeCall(const EmulatedPooling& pooling, const EmulatedTensor& x,
                        const EmulatedTensor& y, const void* alpha, const void* beta) {
  if (const char* const problem = Judge(pooling, x, y)) {
    return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED, problem);
  }
  if (FloatAt(alpha) != 1 || FloatAt(beta) != 0) {
    return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED, "factors are not emulated");
  }
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace
}  // namespace lockstep::emulation

using lockstep::emulation::QueueDnn;

cudnnStatus_t cudnnPoolingForward(cudnnHandle_t handle, cudnnPoolingDescriptor_t pooling,
                                  const void* alpha, cudnnTensorDescriptor_t x_tensor,
                                  const void* x, const void* beta, cudnnTensorDescriptor_t y_tensor,
                                  void* y) {
  const EmulatedPooling p = *pooling;
  const EmulatedTensor in = *x_tensor, out = *y_tensor;
  if (const auto status = lockstep::emulation::JudgeCall(p, in, out, alpha, beta)) return status;
  return QueueDnn(handle, "cudnnPoolingForward",
                  {{"reads x,", x, in.bytes()}, {"writes y,", y, out.bytes()}}, nullptr, 0,
                  [=] { lockstep::emulation::Forward(p, in, x, out, y); });
}

cudnnStatus_t cudnnPoolingBackward(cudnnHandle_t handle, cudnnPoolingDescriptor_t pooling,
                                   const void* alpha, cudnnTensorDescriptor_t y_tensor,
                                   const void* y, cudnnTensorDescriptor_t dy_tensor, const void* dy,
                                   cudnnTensorDescriptor_t x_tensor, const void* x,
                                   const void* beta, cudnnTensorDescriptor_t dx_tensor, void* dx) {
  const EmulatedPooling p = *pooling;
  const EmulatedTensor in = *x_tensor, out = *y_tensor;
  if (const auto status = lockstep::emulation::JudgeCall(p, in, out, alpha, beta)) return status;
  if (!(*dy_tensor == out) || !(*dx_tensor == in)) {
    return lockstep::emulation::RefuseDnn(CUDNN_STATUS_BAD_PARAM, "gradients of other shapes");
  }
  return QueueDnn(handle, "cudnnPoolingBackward",
                  {{"reads y,", y, out.bytes()},
                   {"reads dy,", dy, out.bytes()},
                   {"reads x,", x, in.bytes()},
                   {"writes dx,", dx, in.bytes()}},
                  nullptr, 0, [=] { lockstep::emulation::Backward(p, in, x, out, y, dy, dx); });
}
