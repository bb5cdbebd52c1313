// cuDNN's batch normalisation on emulated GPUs: statistics in double, all else in fp32. What it
// keeps from forward to backward holds a mark, and a backward whose mark is another's fails.

#include <cmath>
#include <vector>

#include "core/cuda/emulation/cudnn_descriptors.h"
#include "glog/logging.h"

namespace lockstep::emulation {
namespace {

constexpr size_t kWorkspaceBytes = 1024, kReserveBytes = 64;
constexpr uint64_t kMark = 0x6c6f636b73746570;

struct Channels {
  EmulatedTensor x;
  const float *scale, *shift;

  int64_t rows() const { return x.n * x.h * x.w; }
};

const char* Judge(cudnnBatchNormMode_t mode, const EmulatedTensor& x,
                  const EmulatedTensor& parameters) {
  if (mode == CUDNN_BATCHNORM_PER_ACTIVATION) return "a mode that is not emulated";
  if (parameters.elements() != x.c) return "parameters that are no number for each channel";
  return parameters.type == ElementType::kF32 ? nullptr : "parameters that are not fp32";
}

void Forward(const Channels& of, const void* x, double epsilon, void* y, float* mean,
             float* inverse_stddev, uint64_t* mark) {
  const int64_t rows = of.rows(), channels = of.x.c;
  const std::vector<float> in = LoadAll(of.x.type, x, of.x.elements());
  std::vector<float> out(in.size());
  for (int64_t c = 0; c < channels; ++c) {
    double sum = 0, squares = 0;
    const auto at = [&](int64_t row) { return static_cast<size_t>(row * channels + c); };
    for (int64_t row = 0; row < rows; ++row) sum += in[at(row)];
    const double center = sum / static_cast<double>(rows);
    for (int64_t row = 0; row < rows; ++row) {
      squares += (in[at(row)] - center) * (in[at(row)] - center);
    }
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(rows) + epsilon);
    mean[c] = static_cast<float>(center);
    inverse_stddev[c] = static_cast<float>(inverse);
    for (int64_t row = 0; row < rows; ++row) {
      out[at(row)] = (in[at(row)] - mean[c]) * inverse_stddev[c] * of.scale[c] + of.shift[c];
    }
  }
  StoreAll(of.x.type, out, 0, y);
  *mark = kMark ^ static_cast<uint64_t>(of.x.elements());
}

void Inference(const Channels& of, const void* x, const float* mean, const float* variance,
               double epsilon, void* y) {
  std::vector<float> values = LoadAll(of.x.type, x, of.x.elements());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto c = static_cast<int64_t>(i) % of.x.c;
    const auto inverse = static_cast<float>(1 / std::sqrt(double{variance[c]} + epsilon));
    values[i] = (values[i] - mean[c]) * inverse * of.scale[c] + of.shift[c];
  }
  StoreAll(of.x.type, values, 0, y);
}

struct ParameterGradients {
  float *dscale, *dshift;
  float beta;
};

void Backward(const Channels& of, const void* x, const void* dy, const float* mean,
              const float* inverse_stddev, void* dx, const ParameterGradients& gradients) {
  const int64_t rows = of.rows(), channels = of.x.c;
  const std::vector<float> in = LoadAll(of.x.type, x, of.x.elements());
  const std::vector<float> slopes = LoadAll(of.x.type, dy, of.x.elements());
  std::vector<float> out(in.size());
  for (int64_t c = 0; c < channels; ++c) {
    const auto at = [&](int64_t row) { return static_cast<size_t>(row * channels + c); };
    const auto normalized = [&](int64_t row) {
      return double{in[at(row)] - mean[c]} * double{inverse_stddev[c]};
    };
    double sum = 0, products = 0;
    for (int64_t row = 0; row < rows; ++row) {
      sum += slopes[at(row)];
      products += slopes[at(row)] * normalized(row);
    }
    const auto count = static_cast<double>(rows);
    for (int64_t row = 0; row < rows; ++row) {
      const double rest = slopes[at(row)] - sum / count - normalized(row) * (products / count);
      out[at(row)] = static_cast<float>(double{of.scale[c]} * inverse_stddev[c] * rest);
    }
    const auto store = [&](float& to, double value) {
      to = static_cast<float>(value) + (gradients.beta == 0 ? 0 : gradients.beta * to);
    };
    store(gradients.dscale[c], products);
    store(gradients.dshift[c], sum);
  }
  StoreAll(of.x.type, out, 0, dx);
}

cudnnStatus_t JudgeTraining(cudnnBatchNormMode_t mode, const EmulatedTensor& x,
                            const EmulatedTensor& parameters, size_t workspace_bytes,
                            size_t reserve_bytes) {
  if (const char* const problem = Judge(mode, x, parameters)) {
    return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED, problem);
  }
  if (workspace_bytes < kWorkspaceBytes || reserve_bytes < kReserveBytes) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM, "too little workspace or reserve");
  }
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace
}  // namespace lockstep::emulation

using lockstep::emulation::Channels;
using lockstep::emulation::ElementType;
using lockstep::emulation::FloatAt;
using lockstep::emulation::JudgeTraining;
using lockstep::emulation::kMark;
using lockstep::emulation::kReserveBytes;
using lockstep::emulation::kWorkspaceBytes;
using lockstep::emulation::QueueDnn;
using lockstep::emulation::RefuseDnn;

cudnnStatus_t cudnnDeriveBNTensorDescriptor(cudnnTensorDescriptor_t parameters,
                                            cudnnTensorDescriptor_t x, cudnnBatchNormMode_t) {
  *parameters = {.type = ElementType::kF32, .n = 1, .c = x->c, .h = 1, .w = 1};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    cudnnHandle_t, cudnnBatchNormMode_t, cudnnBatchNormOps_t, cudnnTensorDescriptor_t,
    cudnnTensorDescriptor_t, cudnnTensorDescriptor_t, cudnnTensorDescriptor_t,
    cudnnActivationDescriptor_t, size_t* bytes) {
  *bytes = kWorkspaceBytes;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    cudnnHandle_t, cudnnBatchNormMode_t, cudnnBatchNormOps_t, cudnnTensorDescriptor_t,
    cudnnTensorDescriptor_t, cudnnTensorDescriptor_t, cudnnTensorDescriptor_t,
    cudnnTensorDescriptor_t, cudnnTensorDescriptor_t, cudnnActivationDescriptor_t, size_t* bytes) {
  *bytes = kWorkspaceBytes;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
    cudnnHandle_t, cudnnBatchNormMode_t, cudnnBatchNormOps_t, cudnnActivationDescriptor_t,
    cudnnTensorDescriptor_t, size_t* bytes) {
  *bytes = kReserveBytes;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBatchNormalizationForwardTrainingEx(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t, const void* alpha,
    const void* beta, cudnnTensorDescriptor_t x_tensor, const void* x, cudnnTensorDescriptor_t,
    const void*, cudnnTensorDescriptor_t y_tensor, void* y, cudnnTensorDescriptor_t parameters,
    const void* scale, const void* bias, double, void* running_mean, void*, double epsilon,
    void* saved_mean, void* saved_inverse_stddev, cudnnActivationDescriptor_t, void* workspace,
    size_t workspace_bytes, void* reserve, size_t reserve_bytes) {
  const EmulatedTensor in = *x_tensor;
  if (const auto status = JudgeTraining(mode, in, *parameters, workspace_bytes, reserve_bytes)) {
    return status;
  }
  const bool is_emulated =
      running_mean == nullptr && FloatAt(alpha) == 1 && FloatAt(beta) == 0 && *y_tensor == in;
  if (!is_emulated) return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED, "running means and factors");
  const size_t bytes = parameters->bytes();
  const Channels of = {in, static_cast<const float*>(scale), static_cast<const float*>(bias)};
  return QueueDnn(handle, "cudnnBatchNormalizationForwardTrainingEx",
                  {{"reads x,", x, in.bytes()},
                   {"writes y,", y, in.bytes()},
                   {"reads the scale,", scale, bytes},
                   {"reads the bias,", bias, bytes},
                   {"writes the mean,", saved_mean, bytes},
                   {"writes the inverse deviation,", saved_inverse_stddev, bytes},
                   {"writes the reserve,", reserve, reserve_bytes}},
                  workspace, workspace_bytes, [=] {
                    lockstep::emulation::Forward(of, x, epsilon, y, static_cast<float*>(saved_mean),
                                                 static_cast<float*>(saved_inverse_stddev),
                                                 static_cast<uint64_t*>(reserve));
                  });
}

cudnnStatus_t cudnnBatchNormalizationForwardInference(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void* alpha, const void* beta,
    cudnnTensorDescriptor_t x_tensor, const void* x, cudnnTensorDescriptor_t y_tensor, void* y,
    cudnnTensorDescriptor_t parameters, const void* scale, const void* bias, const void* mean,
    const void* variance, double epsilon) {
  const EmulatedTensor in = *x_tensor;
  if (const char* const problem = lockstep::emulation::Judge(mode, in, *parameters)) {
    return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED, problem);
  }
  if (FloatAt(alpha) != 1 || FloatAt(beta) != 0 || !(*y_tensor == in)) {
    return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED, "factors are not emulated");
  }
  const size_t bytes = parameters->bytes();
  const Channels of = {in, static_cast<const float*>(scale), static_cast<const float*>(bias)};
  return QueueDnn(handle, "cudnnBatchNormalizationForwardInference",
                  {{"reads x,", x, in.bytes()},
                   {"writes y,", y, in.bytes()},
                   {"reads the scale,", scale, bytes},
                   {"reads the bias,", bias, bytes},
                   {"reads the mean,", mean, bytes},
                   {"reads the variance,", variance, bytes}},
                  nullptr, 0, [=] {
                    lockstep::emulation::Inference(of, x, static_cast<const float*>(mean),
                                                   static_cast<const float*>(variance), epsilon, y);
                  });
}

cudnnStatus_t cudnnBatchNormalizationBackwardEx(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t, const void* alpha_data,
    const void* beta_data, const void* alpha_parameters, const void* beta_parameters,
    cudnnTensorDescriptor_t x_tensor, const void* x, cudnnTensorDescriptor_t, const void*,
    cudnnTensorDescriptor_t dy_tensor, const void* dy, cudnnTensorDescriptor_t, void*,
    cudnnTensorDescriptor_t dx_tensor, void* dx, cudnnTensorDescriptor_t parameters,
    const void* scale, const void*, void* dscale, void* dbias, double, const void* saved_mean,
    const void* saved_inverse_stddev, cudnnActivationDescriptor_t, void* workspace,
    size_t workspace_bytes, void* reserve, size_t reserve_bytes) {
  const EmulatedTensor in = *x_tensor;
  if (const auto status = JudgeTraining(mode, in, *parameters, workspace_bytes, reserve_bytes)) {
    return status;
  }
  const bool is_emulated = FloatAt(alpha_data) == 1 && FloatAt(beta_data) == 0 &&
                           FloatAt(alpha_parameters) == 1 && *dy_tensor == in && *dx_tensor == in;
  if (!is_emulated) return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED, "factors are not emulated");
  const size_t bytes = parameters->bytes();
  const Channels of = {in, static_cast<const float*>(scale), nullptr};
  const lockstep::emulation::ParameterGradients gradients = {
      static_cast<float*>(dscale), static_cast<float*>(dbias), FloatAt(beta_parameters)};
  return QueueDnn(handle, "cudnnBatchNormalizationBackwardEx",
                  {{"reads x,", x, in.bytes()},
                   {"reads dy,", dy, in.bytes()},
                   {"writes dx,", dx, in.bytes()},
                   {"reads the scale,", scale, bytes},
                   {"writes the scale's gradient,", dscale, bytes},
                   {"writes the bias's gradient,", dbias, bytes},
                   {"reads the mean,", saved_mean, bytes},
                   {"reads the inverse deviation,", saved_inverse_stddev, bytes},
                   {"reads the reserve,", reserve, reserve_bytes}},
                  workspace, workspace_bytes, [=] {
                    const auto mark = kMark ^ static_cast<uint64_t>(in.elements());
                    CHECK_EQ(*static_cast<const uint64_t*>(reserve), mark)
                        << "what batch normalisation's forward has kept is gone";
                    lockstep::emulation::Backward(of, x, dy, static_cast<const float*>(saved_mean),
                                                  static_cast<const float*>(saved_inverse_stddev),
                                                  dx, gradients);
                  });
}
