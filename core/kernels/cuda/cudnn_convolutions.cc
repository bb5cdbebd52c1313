#include "core/kernels/cuda/cudnn_convolutions.h"

#include <array>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep::cuda {
namespace {

using FilterDescriptor = CudnnDescriptor<cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor,
                                         cudnnDestroyFilterDescriptor>;
using ConvolutionDescriptor =
    CudnnDescriptor<cudnnConvolutionDescriptor_t, cudnnCreateConvolutionDescriptor,
                    cudnnDestroyConvolutionDescriptor>;
using ActivationDescriptor =
    CudnnDescriptor<cudnnActivationDescriptor_t, cudnnCreateActivationDescriptor,
                    cudnnDestroyActivationDescriptor>;

// The first of cuDNN's proposals, fastest first, that works, repeats its bits and, where `exact`,
// does without TF32.
template <typename Result, size_t kCount>
const Result& Choose(const std::array<Result, kCount>& proposals, int returned, DType dtype,
                     bool exact) {
  for (int i = 0; i < returned; ++i) {
    const Result& proposal = proposals[static_cast<size_t>(i)];
    const bool serves =
        !exact || proposal.mathType == CUDNN_FMA_MATH || proposal.mathType == CUDNN_DEFAULT_MATH;
    if (proposal.status == CUDNN_STATUS_SUCCESS && serves &&
        proposal.determinism == CUDNN_DETERMINISTIC) {
      return proposal;
    }
  }
  throw StatusException(absl::UnimplementedError(
      absl::StrCat("cuDNN has no convolution of ", Name(dtype), " that repeats its bits")));
}

}  // namespace

struct CudnnConvolutions::Plan {
  TensorDescriptor x, y, bias;
  FilterDescriptor w;
  ConvolutionDescriptor convolution;
  ActivationDescriptor identity;
  // Algorithms. A plan uses the one of its own pass.
  cudnnConvolutionFwdAlgo_t forward = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  cudnnConvolutionBwdDataAlgo_t backward_input = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
  cudnnConvolutionBwdFilterAlgo_t backward_weight = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;
  size_t workspace = 0;
  bool refuses_bias = false;  // cuDNN has been asked, and has no such convolution with a bias
};

bool CudnnConvolutions::AllowsTf32(Pass pass, DType dtype, Fp32Products fp32_products) {
  return dtype == DType::kF32 &&
         (fp32_products == Fp32Products::kTf32 || pass == Pass::kBackwardWeightOfWidened);
}

CudnnConvolutions::CudnnConvolutions(Cudnn& cudnn, Fp32Products fp32_products)
    : cudnn_(cudnn), fp32_products_(fp32_products) {}

CudnnConvolutions::~CudnnConvolutions() = default;

CudnnConvolutions::Plan& CudnnConvolutions::PlanOf(Pass pass, const Window& window, const Tensor& x,
                                                   const Tensor& w, bool has_bias,
                                                   const Tensor& y) {
  std::unique_ptr<Plan>& kept =
      plans_[Key{pass, x.dtype(), has_bias, x.shape()[0], x.shape()[1], x.shape()[2], x.shape()[3],
                 w.shape()[0], window.kernel, window.stride, window.padding}];
  if (kept != nullptr) return *kept;
  const cudnnHandle_t handle = cudnn_.handle();
  auto plan = std::make_unique<Plan>();
  const DType dtype = x.dtype();
  const int in = static_cast<int>(x.shape()[3]), out = static_cast<int>(w.shape()[0]);
  Describe(plan->x, dtype, ImagesOf(x));
  Describe(plan->y, dtype, ImagesOf(y));
  Describe(plan->bias, dtype, {.batch = 1, .height = 1, .width = 1, .channels = out});
  LS_CUDNN(cudnnSetFilter4dDescriptor(plan->w, CudnnType(dtype), CUDNN_TENSOR_NHWC, out, in,
                                      window.kernel, window.kernel));
  LS_CUDNN(cudnnSetConvolution2dDescriptor(plan->convolution, window.padding, window.padding,
                                           window.stride, window.stride, 1, 1,
                                           CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  // The default takes TF32 for fp32.
  const bool exact = dtype == DType::kF32 && !AllowsTf32(pass, dtype, fp32_products_);
  LS_CUDNN(cudnnSetConvolutionMathType(plan->convolution, exact ? CUDNN_FMA_MATH
                                                          : dtype == DType::kF32
                                                              ? CUDNN_DEFAULT_MATH
                                                              : CUDNN_TENSOR_OP_MATH));
  LS_CUDNN(cudnnSetActivationDescriptor(plan->identity, CUDNN_ACTIVATION_IDENTITY,
                                        CUDNN_PROPAGATE_NAN, 0));
  int returned = 0;
  cudnnMathType_t math;
  switch (pass) {
    case Pass::kForward: {
      std::array<cudnnConvolutionFwdAlgoPerf_t, CUDNN_CONVOLUTION_FWD_ALGO_COUNT> proposals;
      LS_CUDNN(cudnnGetConvolutionForwardAlgorithm_v7(handle, plan->x, plan->w, plan->convolution,
                                                      plan->y, CUDNN_CONVOLUTION_FWD_ALGO_COUNT,
                                                      &returned, proposals.data()));
      const auto& chosen = Choose(proposals, returned, dtype, exact);
      math = chosen.mathType;
      // With a bias and nothing else behind it there is one algorithm.
      if (!has_bias) plan->forward = chosen.algo;
      break;
    }
    case Pass::kBackwardInput: {
      std::array<cudnnConvolutionBwdDataAlgoPerf_t, CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT>
          proposals;
      LS_CUDNN(cudnnGetConvolutionBackwardDataAlgorithm_v7(
          handle, plan->w, plan->y, plan->convolution, plan->x,
          CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT, &returned, proposals.data()));
      const auto& chosen = Choose(proposals, returned, dtype, exact);
      math = chosen.mathType;
      plan->backward_input = chosen.algo;
      break;
    }
    case Pass::kBackwardWeight:
    case Pass::kBackwardWeightOfWidened: {
      std::array<cudnnConvolutionBwdFilterAlgoPerf_t, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT>
          proposals;
      LS_CUDNN(cudnnGetConvolutionBackwardFilterAlgorithm_v7(
          handle, plan->x, plan->y, plan->convolution, plan->w,
          CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT, &returned, proposals.data()));
      const auto& chosen = Choose(proposals, returned, dtype, exact);
      math = chosen.mathType;
      plan->backward_weight = chosen.algo;
      break;
    }
  }
  if (exact) math = CUDNN_FMA_MATH;
  LS_CUDNN(cudnnSetConvolutionMathType(plan->convolution, math));
  switch (pass) {
    case Pass::kForward:
      LS_CUDNN(cudnnGetConvolutionForwardWorkspaceSize(handle, plan->x, plan->w, plan->convolution,
                                                       plan->y, plan->forward, &plan->workspace));
      break;
    case Pass::kBackwardInput:
      LS_CUDNN(cudnnGetConvolutionBackwardDataWorkspaceSize(
          handle, plan->w, plan->y, plan->convolution, plan->x, plan->backward_input,
          &plan->workspace));
      break;
    case Pass::kBackwardWeight:
    case Pass::kBackwardWeightOfWidened:
      LS_CUDNN(cudnnGetConvolutionBackwardFilterWorkspaceSize(
          handle, plan->x, plan->y, plan->convolution, plan->w, plan->backward_weight,
          &plan->workspace));
      break;
  }
  kept = std::move(plan);
  return *kept;
}

cudnnStatus_t CudnnConvolutions::ForwardWithBias(const Plan& plan, const Tensor& workspace,
                                                 const Tensor& x, const Tensor& w,
                                                 const Tensor& bias, const Tensor& y) {
  const float one = 1, zero = 0;
  // cuDNN adds zero times a tensor of y's shape: y itself, which it does not read then.
  return cudnnConvolutionBiasActivationForward(
      cudnn_.handle(), &one, plan.x, x.raw(), plan.w, w.raw(), plan.convolution, plan.forward,
      workspace.raw(), plan.workspace, &zero, plan.y, y.raw(), plan.bias, bias.raw(), plan.identity,
      plan.y, y.raw());
}

bool CudnnConvolutions::Run(Allocator& allocator, Pass pass, const Window& window, const Tensor& x,
                            const Tensor& w, const Tensor& bias, const Tensor& y) {
  CHECK(x.dtype() == w.dtype() && w.dtype() == y.dtype());
  const cudnnHandle_t handle = cudnn_.handle();
  Plan& plan = PlanOf(pass, window, x, w, bias.defined(), y);
  if (plan.refuses_bias) {
    static_cast<void>(Run(allocator, pass, window, x, w, Tensor(), y));
    return false;
  }
  const Tensor workspace = Tensor::Empty(allocator, {static_cast<int64_t>(plan.workspace)},
                                         DType::kU8, MemoryClass::kWorkspace);
  const float one = 1, zero = 0;
  switch (pass) {
    case Pass::kForward:
      if (bias.defined()) {
        const cudnnStatus_t status = ForwardWithBias(plan, workspace, x, w, bias, y);
        // cuDNN may say more closely what it does not support.
        plan.refuses_bias = CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED;
        if (plan.refuses_bias) {
          VLOG(1) << "cuDNN has no convolution of " << x.ToString() << " and " << w.ToString()
                  << " with a bias: it is added behind";
          return Run(allocator, pass, window, x, w, bias, y);
        }
        LS_CUDNN(status);
      } else {
        LS_CUDNN(cudnnConvolutionForward(handle, &one, plan.x, x.raw(), plan.w, w.raw(),
                                         plan.convolution, plan.forward, workspace.raw(),
                                         plan.workspace, &zero, plan.y, y.raw()));
      }
      break;
    case Pass::kBackwardInput:
      LS_CUDNN(cudnnConvolutionBackwardData(handle, &one, plan.w, w.raw(), plan.y, y.raw(),
                                            plan.convolution, plan.backward_input, workspace.raw(),
                                            plan.workspace, &zero, plan.x, x.raw()));
      break;
    case Pass::kBackwardWeight:
    case Pass::kBackwardWeightOfWidened:
      LS_CUDNN(cudnnConvolutionBackwardFilter(
          handle, &one, plan.x, x.raw(), plan.y, y.raw(), plan.convolution, plan.backward_weight,
          workspace.raw(), plan.workspace, &zero, plan.w, w.raw()));
      break;
  }
  return true;
}

}  // namespace lockstep::cuda
