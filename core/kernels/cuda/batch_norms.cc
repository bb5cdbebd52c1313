#include "core/kernels/cuda/batch_norms.h"

#include <utility>

#include "glog/logging.h"

namespace lockstep::cuda {
namespace {

// The mode whose kernels for channels-last tensors are the fast ones; it adds in an order of its
// own or in scaled integers, and either way repeats its bits.
constexpr cudnnBatchNormMode_t kTraining = CUDNN_BATCHNORM_SPATIAL_PERSISTENT;
constexpr cudnnBatchNormMode_t kInference = CUDNN_BATCHNORM_SPATIAL;
constexpr cudnnBatchNormOps_t kAlone = CUDNN_BATCHNORM_OPS_BN;

constexpr float kOne = 1, kZero = 0;

// A matrix is an image of one column: as a batch it would have more images than cuDNN takes.
Images Normalized(const Tensor& x) {
  if (x.shape().rank() == 4) return ImagesOf(x);
  return {.batch = 1, .height = x.shape().rows(), .width = 1, .channels = x.shape()[-1]};
}

Tensor Bytes(Allocator& allocator, size_t bytes, MemoryClass memory_class) {
  return Tensor::Empty(allocator, {static_cast<int64_t>(bytes)}, DType::kU8, memory_class);
}

}  // namespace

struct BatchNorms::Plan {
  TensorDescriptor x, parameters;
  // Bytes, in training.
  size_t forward_workspace = 0, backward_workspace = 0, kept = 0;
};

BatchNorms::BatchNorms(Cudnn& cudnn) : cudnn_(cudnn) {}
BatchNorms::~BatchNorms() = default;

const BatchNorms::Plan& BatchNorms::PlanOf(Use use, const Tensor& x) {
  const Images images = Normalized(x);
  std::unique_ptr<Plan>& kept = plans_[{use, x.dtype(), images}];
  if (kept != nullptr) return *kept;
  auto plan = std::make_unique<Plan>();
  Describe(plan->x, x.dtype(), images);
  LS_CUDNN(cudnnDeriveBNTensorDescriptor(plan->parameters, plan->x,
                                         use == Use::kTraining ? kTraining : kInference));
  if (use == Use::kTraining) {
    const cudnnHandle_t handle = cudnn_.handle();
    // cuDNN wants descriptions of tensors that are not used, too.
    const TensorDescriptor &z = plan->x, &y = plan->x;
    LS_CUDNN(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
        handle, kTraining, kAlone, plan->x, z, plan->x, plan->parameters,
        /*activationDesc=*/nullptr, &plan->forward_workspace));
    LS_CUDNN(cudnnGetBatchNormalizationBackwardExWorkspaceSize(
        handle, kTraining, kAlone, plan->x, y, plan->x, /*dzDesc=*/nullptr, plan->x,
        plan->parameters, /*activationDesc=*/nullptr, &plan->backward_workspace));
    LS_CUDNN(cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
        handle, kTraining, kAlone, /*activationDesc=*/nullptr, plan->x, &plan->kept));
  }
  kept = std::move(plan);
  return *kept;
}

Tensor BatchNorms::Forward(Allocator& allocator, const Tensor& x, const Tensor& scale,
                           const Tensor& shift, float epsilon, const Tensor& y, const Tensor& mean,
                           const Tensor& inverse_stddev) {
  CHECK(y.dtype() == x.dtype()) << Name(y.dtype()) << " and " << Name(x.dtype());
  const Plan& plan = PlanOf(Use::kTraining, x);
  const Tensor workspace = Bytes(allocator, plan.forward_workspace, MemoryClass::kWorkspace);
  Tensor kept;
  if (plan.kept > 0) kept = Bytes(allocator, plan.kept, MemoryClass::kActivations);
  LS_CUDNN(cudnnBatchNormalizationForwardTrainingEx(
      cudnn_.handle(), kTraining, kAlone, &kOne, &kZero, plan.x, x.raw(), /*zDesc=*/nullptr,
      /*zData=*/nullptr, plan.x, y.raw(), plan.parameters, scale.data<float>(), shift.data<float>(),
      /*exponentialAverageFactor=*/1, /*resultRunningMean=*/nullptr,
      /*resultRunningVariance=*/nullptr, epsilon, mean.data<float>(), inverse_stddev.data<float>(),
      /*activationDesc=*/nullptr, workspace.raw(), plan.forward_workspace, kept.raw(), plan.kept));
  return kept;
}

void BatchNorms::Inference(const Tensor& x, const Tensor& scale, const Tensor& shift,
                           const Tensor& mean, const Tensor& variance, float epsilon,
                           const Tensor& y) {
  CHECK(y.dtype() == x.dtype()) << Name(y.dtype()) << " and " << Name(x.dtype());
  const Plan& plan = PlanOf(Use::kInference, x);
  LS_CUDNN(cudnnBatchNormalizationForwardInference(
      cudnn_.handle(), kInference, &kOne, &kZero, plan.x, x.raw(), plan.x, y.raw(), plan.parameters,
      scale.data<float>(), shift.data<float>(), mean.data<float>(), variance.data<float>(),
      epsilon));
}

void BatchNorms::Backward(Allocator& allocator, const Tensor& x, const Tensor& scale,
                          const Tensor& mean, const Tensor& inverse_stddev, const Tensor& kept,
                          float epsilon, const Tensor& dy, const Tensor& dx, Write write,
                          const Tensor& dscale, const Tensor& dshift) {
  CHECK(dy.dtype() == x.dtype() && dx.dtype() == x.dtype())
      << Name(x.dtype()) << ", " << Name(dy.dtype()) << " and " << Name(dx.dtype());
  const Plan& plan = PlanOf(Use::kTraining, x);
  CHECK_EQ(kept.bytes(), static_cast<int64_t>(plan.kept));
  const Tensor workspace = Bytes(allocator, plan.backward_workspace, MemoryClass::kWorkspace);
  LS_CUDNN(cudnnBatchNormalizationBackwardEx(
      cudnn_.handle(), kTraining, kAlone, &kOne, &kZero, &kOne,
      write == Write::kAccumulate ? &kOne : &kZero, plan.x, x.raw(), /*yDesc=*/nullptr,
      /*yData=*/nullptr, plan.x, dy.raw(), /*dzDesc=*/nullptr, /*dzData=*/nullptr, plan.x, dx.raw(),
      plan.parameters, scale.data<float>(), /*bnBiasData=*/nullptr, dscale.data<float>(),
      dshift.data<float>(), epsilon, mean.data<float>(), inverse_stddev.data<float>(),
      /*activationDesc=*/nullptr, workspace.raw(), plan.backward_workspace, kept.raw(), plan.kept));
}

}  // namespace lockstep::cuda
