// cuDNN's convolutions on emulated GPUs: an element is one chain of fused multiply-adds in fp32,
// rounded once.

#include "core/cuda/emulation/cudnn_convolutions.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace lockstep::emulation {

const char* JudgeExtents(const Geometry& g) {
  const auto output = [](int64_t extent, int64_t kernel, int64_t pad, int64_t stride) {
    return (extent + 2 * pad - kernel) / stride + 1;
  };
  if (g.x.c != g.w.c || g.y.c != g.w.k || g.x.n != g.y.n) return "shapes that do not fit";
  const EmulatedConvolution& c = g.convolution;
  if (g.y.h != output(g.x.h, g.w.h, c.pad_h, c.stride_h) ||
      g.y.w != output(g.x.w, g.w.w, c.pad_w, c.stride_w)) {
    return "extents of y that x and the window do not have";
  }
  return nullptr;
}

namespace {

// Why there is no such convolution, or null.
const char* Judge(const Geometry& g) {
  if (g.x.type != g.w.type || g.y.type != g.w.type) return "tensors of several types";
  return JudgeExtents(g);
}

// Elements as tensor cores or plain multiply-adds take them.
std::vector<float> Operand(const EmulatedConvolution& convolution, ElementType type,
                           const void* data, int64_t elements) {
  std::vector<float> values = LoadAll(type, data, elements);
  if (type == ElementType::kF32 && convolution.math != CUDNN_FMA_MATH) {
    for (float& value : values) value = RoundToTf32(value);
  }
  return values;
}

// f(x's offset, y's offset, w's offset of output channel 0, each for channel 0) for all pixels of x
// that all elements of y see, in one order.
template <typename Function>
void ForPixels(const Geometry& g, Function&& f) {
  const EmulatedConvolution& c = g.convolution;
  for (int64_t n = 0; n < g.y.n; ++n) {
    for (int64_t row = 0; row < g.y.h; ++row) {
      for (int64_t column = 0; column < g.y.w; ++column) {
        for (int64_t i = 0; i < g.w.h; ++i) {
          for (int64_t j = 0; j < g.w.w; ++j) {
            const int64_t from_row = row * c.stride_h + i - c.pad_h;
            const int64_t from_column = column * c.stride_w + j - c.pad_w;
            if (from_row < 0 || from_row >= g.x.h || from_column < 0 || from_column >= g.x.w) {
              continue;
            }
            f(g.x.At(n, from_row, from_column), g.y.At(n, row, column), (i * g.w.w + j) * g.w.c);
          }
        }
      }
    }
  }
}

float Add(float sum, float a, float b) { return std::fma(a, b, sum); }

int64_t FilterStride(const EmulatedFilter& w) { return w.h * w.w * w.c; }
int64_t Elements(const EmulatedFilter& w) { return w.k * FilterStride(w); }

void Forward(const Geometry& g, const void* x, const void* w, const void* bias, float beta,
             void* y) {
  const std::vector<float> in = Operand(g.convolution, g.x.type, x, g.x.elements());
  const std::vector<float> filter = Operand(g.convolution, g.w.type, w, Elements(g.w));
  std::vector<float> out(static_cast<size_t>(g.y.elements()));
  ForPixels(g, [&](int64_t from, int64_t to, int64_t tap) {
    for (int64_t k = 0; k < g.w.k; ++k) {
      float& sum = out[static_cast<size_t>(to + k)];
      const float* const weights = filter.data() + k * FilterStride(g.w) + tap;
      for (int64_t c = 0; c < g.w.c; ++c)
        sum = Add(sum, in[static_cast<size_t>(from + c)], weights[c]);
    }
  });
  if (bias != nullptr) {
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] += LoadElement(g.y.type, bias, static_cast<int64_t>(i) % g.y.c);
    }
  }
  StoreAll(g.y.type, out, beta, y);
}

void BackwardData(const Geometry& g, const void* w, const void* dy, float beta, void* dx) {
  const std::vector<float> slopes = Operand(g.convolution, g.y.type, dy, g.y.elements());
  const std::vector<float> filter = Operand(g.convolution, g.w.type, w, Elements(g.w));
  std::vector<float> out(static_cast<size_t>(g.x.elements()));
  ForPixels(g, [&](int64_t to, int64_t from, int64_t tap) {
    for (int64_t k = 0; k < g.w.k; ++k) {
      const float slope = slopes[static_cast<size_t>(from + k)];
      const float* const weights = filter.data() + k * FilterStride(g.w) + tap;
      for (int64_t c = 0; c < g.w.c; ++c) {
        float& sum = out[static_cast<size_t>(to + c)];
        sum = Add(sum, slope, weights[c]);
      }
    }
  });
  StoreAll(g.x.type, out, beta, dx);
}

}  // namespace

void BackwardFilter(const Geometry& g, const void* x, const void* dy, float beta, void* dw) {
  const std::vector<float> in = Operand(g.convolution, g.x.type, x, g.x.elements());
  const std::vector<float> slopes = Operand(g.convolution, g.y.type, dy, g.y.elements());
  std::vector<float> out(static_cast<size_t>(Elements(g.w)));
  ForPixels(g, [&](int64_t from, int64_t of, int64_t tap) {
    for (int64_t k = 0; k < g.w.k; ++k) {
      const float slope = slopes[static_cast<size_t>(of + k)];
      float* const sums = out.data() + k * FilterStride(g.w) + tap;
      for (int64_t c = 0; c < g.w.c; ++c) {
        sums[c] = Add(sums[c], slope, in[static_cast<size_t>(from + c)]);
      }
    }
  });
  StoreAll(g.w.type, out, beta, dw);
}

namespace {

// What every algorithm asks for.
constexpr size_t kWorkspaceBytes = 4096;

// Proposes one that is fast and does not repeat its bits, then one that does.
template <typename Performance, typename Algorithm>
cudnnStatus_t Propose(const Geometry& g, Algorithm fast, Algorithm repeating, int wanted,
                      int* returned, Performance* results) {
  *returned = 0;
  if (const char* const problem = Judge(g)) return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED, problem);
  const Performance both[] = {{.algo = fast,
                               .status = CUDNN_STATUS_SUCCESS,
                               .time = -1,
                               .memory = kWorkspaceBytes,
                               .determinism = CUDNN_NON_DETERMINISTIC,
                               .mathType = g.convolution.math},
                              {.algo = repeating,
                               .status = CUDNN_STATUS_SUCCESS,
                               .time = -1,
                               .memory = kWorkspaceBytes,
                               .determinism = CUDNN_DETERMINISTIC,
                               .mathType = g.convolution.math}};
  for (; *returned < wanted && *returned < 2; ++*returned) results[*returned] = both[*returned];
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t WorkspaceOf(const Geometry& g, size_t* bytes) {
  if (const char* const problem = Judge(g)) return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED, problem);
  *bytes = kWorkspaceBytes;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t JudgeCall(const Geometry& g, const void* alpha, size_t workspace_bytes) {
  if (const char* const problem = Judge(g)) return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED, problem);
  if (FloatAt(alpha) != 1) return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED, "factors are not emulated");
  if (workspace_bytes < kWorkspaceBytes) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM, "too little workspace");
  }
  return CUDNN_STATUS_SUCCESS;
}

// Whether there is a convolution with a bias, which cuDNN documents for some shapes alone: not if
// LOCKSTEP_EMULATED_CUDNN_BIAS of the environment is 0.
bool HasBias() {
  const char* const has = std::getenv("LOCKSTEP_EMULATED_CUDNN_BIAS");
  return has == nullptr || std::strcmp(has, "0") != 0;
}

}  // namespace
}  // namespace lockstep::emulation

using lockstep::emulation::BackwardData;
using lockstep::emulation::BackwardFilter;
using lockstep::emulation::FloatAt;
using lockstep::emulation::Forward;
using lockstep::emulation::Geometry;
using lockstep::emulation::HasBias;
using lockstep::emulation::JudgeCall;
using lockstep::emulation::Propose;
using lockstep::emulation::QueueDnn;
using lockstep::emulation::RefuseDnn;
using lockstep::emulation::WorkspaceOf;

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                     cudnnFilterDescriptor_t w,
                                                     cudnnConvolutionDescriptor_t convolution,
                                                     cudnnTensorDescriptor_t y, int wanted,
                                                     int* returned,
                                                     cudnnConvolutionFwdAlgoPerf_t* results) {
  return Propose(Geometry{*x, *y, *w, *convolution}, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
                 CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, wanted, returned, results);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t dx, int wanted, int* returned,
    cudnnConvolutionBwdDataAlgoPerf_t* results) {
  return Propose(Geometry{*dx, *dy, *w, *convolution}, CUDNN_CONVOLUTION_BWD_DATA_ALGO_0,
                 CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, wanted, returned, results);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t convolution, cudnnFilterDescriptor_t dw, int wanted, int* returned,
    cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  return Propose(Geometry{*x, *dy, *dw, *convolution}, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0,
                 CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, wanted, returned, results);
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                      cudnnFilterDescriptor_t w,
                                                      cudnnConvolutionDescriptor_t convolution,
                                                      cudnnTensorDescriptor_t y,
                                                      cudnnConvolutionFwdAlgo_t, size_t* bytes) {
  return WorkspaceOf({*x, *y, *w, *convolution}, bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t, cudnnFilterDescriptor_t w,
                                                           cudnnTensorDescriptor_t dy,
                                                           cudnnConvolutionDescriptor_t convolution,
                                                           cudnnTensorDescriptor_t dx,
                                                           cudnnConvolutionBwdDataAlgo_t,
                                                           size_t* bytes) {
  return WorkspaceOf({*dx, *dy, *w, *convolution}, bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t convolution, cudnnFilterDescriptor_t dw,
    cudnnConvolutionBwdFilterAlgo_t, size_t* bytes) {
  return WorkspaceOf({*x, *dy, *dw, *convolution}, bytes);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                      cudnnTensorDescriptor_t x_tensor, const void* x,
                                      cudnnFilterDescriptor_t w_filter, const void* w,
                                      cudnnConvolutionDescriptor_t convolution,
                                      cudnnConvolutionFwdAlgo_t algorithm, void* workspace,
                                      size_t workspace_bytes, const void* beta,
                                      cudnnTensorDescriptor_t y_tensor, void* y) {
  const Geometry g = {*x_tensor, *y_tensor, *w_filter, *convolution};
  if (const cudnnStatus_t status = JudgeCall(g, alpha, workspace_bytes)) return status;
  if (algorithm != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM) {
    return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED, "an algorithm that has no NHWC");
  }
  const float kept = FloatAt(beta);
  return QueueDnn(
      handle, "cudnnConvolutionForward",
      {{"reads x,", x, g.x.bytes()}, {"reads w,", w, g.w.bytes()}, {"writes y,", y, g.y.bytes()}},
      workspace, workspace_bytes, [=] { Forward(g, x, w, nullptr, kept, y); });
}

cudnnStatus_t cudnnConvolutionBiasActivationForward(
    cudnnHandle_t handle, const void* alpha1, cudnnTensorDescriptor_t x_tensor, const void* x,
    cudnnFilterDescriptor_t w_filter, const void* w, cudnnConvolutionDescriptor_t convolution,
    cudnnConvolutionFwdAlgo_t algorithm, void* workspace, size_t workspace_bytes,
    const void* alpha2, cudnnTensorDescriptor_t z_tensor, const void* z,
    cudnnTensorDescriptor_t bias_tensor, const void* bias, cudnnActivationDescriptor_t activation,
    cudnnTensorDescriptor_t y_tensor, void* y) {
  const Geometry g = {*x_tensor, *y_tensor, *w_filter, *convolution};
  if (const cudnnStatus_t status = JudgeCall(g, alpha1, workspace_bytes)) return status;
  if (!HasBias()) return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED_SHAPE, "no convolution with a bias");
  if (activation->mode != CUDNN_ACTIVATION_IDENTITY ||
      algorithm != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM) {
    return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED,
                     "the identity goes with CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM");
  }
  if (!(*z_tensor == *y_tensor) || z == nullptr || FloatAt(alpha2) != 0) {
    return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED, "z is not emulated, and must have y's shape");
  }
  if (bias_tensor->elements() != g.y.c || bias_tensor->type != g.y.type) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM, "a bias that is no number for each channel");
  }
  return QueueDnn(handle, "cudnnConvolutionBiasActivationForward",
                  {{"reads x,", x, g.x.bytes()},
                   {"reads w,", w, g.w.bytes()},
                   {"reads the bias,", bias, bias_tensor->bytes()},
                   {"writes y,", y, g.y.bytes()}},
                  workspace, workspace_bytes, [=] { Forward(g, x, w, bias, 0, y); });
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           cudnnFilterDescriptor_t w_filter, const void* w,
                                           cudnnTensorDescriptor_t dy_tensor, const void* dy,
                                           cudnnConvolutionDescriptor_t convolution,
                                           cudnnConvolutionBwdDataAlgo_t, void* workspace,
                                           size_t workspace_bytes, const void* beta,
                                           cudnnTensorDescriptor_t dx_tensor, void* dx) {
  const Geometry g = {*dx_tensor, *dy_tensor, *w_filter, *convolution};
  if (const cudnnStatus_t status = JudgeCall(g, alpha, workspace_bytes)) return status;
  const float kept = FloatAt(beta);
  return QueueDnn(handle, "cudnnConvolutionBackwardData",
                  {{"reads w,", w, g.w.bytes()},
                   {"reads dy,", dy, g.y.bytes()},
                   {"writes dx,", dx, g.x.bytes()}},
                  workspace, workspace_bytes, [=] { BackwardData(g, w, dy, kept, dx); });
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             cudnnTensorDescriptor_t x_tensor, const void* x,
                                             cudnnTensorDescriptor_t dy_tensor, const void* dy,
                                             cudnnConvolutionDescriptor_t convolution,
                                             cudnnConvolutionBwdFilterAlgo_t, void* workspace,
                                             size_t workspace_bytes, const void* beta,
                                             cudnnFilterDescriptor_t dw_filter, void* dw) {
  const Geometry g = {*x_tensor, *dy_tensor, *dw_filter, *convolution};
  if (const cudnnStatus_t status = JudgeCall(g, alpha, workspace_bytes)) return status;
  const float kept = FloatAt(beta);
  return QueueDnn(handle, "cudnnConvolutionBackwardFilter",
                  {{"reads x,", x, g.x.bytes()},
                   {"reads dy,", dy, g.y.bytes()},
                   {"writes dw,", dw, g.w.bytes()}},
                  workspace, workspace_bytes, [=] { BackwardFilter(g, x, dy, kept, dw); });
}
