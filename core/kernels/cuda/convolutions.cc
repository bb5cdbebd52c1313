#include "core/kernels/cuda/convolutions.h"

#include <array>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep::cuda {
namespace {

void ThrowIfFailed(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw StatusException(
      absl::InternalError(absl::StrCat(__FILE__, ": ", call, ": ", cudnnGetErrorString(status))));
}

#define LS_CUDNN(...) ThrowIfFailed((__VA_ARGS__), #__VA_ARGS__)

cudnnDataType_t TypeOf(DType dtype) {
  CHECK(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16) << Name(dtype);
  return dtype == DType::kF32   ? CUDNN_DATA_FLOAT
         : dtype == DType::kF16 ? CUDNN_DATA_HALF
                                : CUDNN_DATA_BFLOAT16;
}

void Describe(cudnnTensorDescriptor_t descriptor, const Tensor& x) {
  const auto extent = [&](int i) { return static_cast<int>(x.shape()[i]); };
  LS_CUDNN(cudnnSetTensor4dDescriptor(descriptor, CUDNN_TENSOR_NHWC, TypeOf(x.dtype()), extent(0),
                                      extent(3), extent(1), extent(2)));
}

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

struct Convolutions::Plan {
  Plan() {
    LS_CUDNN(cudnnCreateTensorDescriptor(&x));
    LS_CUDNN(cudnnCreateTensorDescriptor(&y));
    LS_CUDNN(cudnnCreateTensorDescriptor(&bias));
    LS_CUDNN(cudnnCreateFilterDescriptor(&w));
    LS_CUDNN(cudnnCreateConvolutionDescriptor(&convolution));
    LS_CUDNN(cudnnCreateActivationDescriptor(&identity));
  }
  ~Plan() {
    cudnnDestroyActivationDescriptor(identity);
    cudnnDestroyConvolutionDescriptor(convolution);
    cudnnDestroyFilterDescriptor(w);
    for (cudnnTensorDescriptor_t tensor : {x, y, bias}) cudnnDestroyTensorDescriptor(tensor);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  cudnnTensorDescriptor_t x = nullptr, y = nullptr, bias = nullptr;
  cudnnFilterDescriptor_t w = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;
  cudnnActivationDescriptor_t identity = nullptr;
  // That of the plan's pass.
  cudnnConvolutionFwdAlgo_t forward = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  cudnnConvolutionBwdDataAlgo_t backward_input = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
  cudnnConvolutionBwdFilterAlgo_t backward_weight = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;
  size_t workspace = 0;
};

Convolutions::Convolutions(const CudaContext& context, Fp32Products fp32_products)
    : context_(context), fp32_products_(fp32_products) {}

Convolutions::~Convolutions() {
  plans_.clear();
  if (handle_ != nullptr) cudnnDestroy(handle_);
}

Convolutions::Plan& Convolutions::PlanOf(Pass pass, const Window& window, const Tensor& x,
                                         const Tensor& w, bool has_bias, const Tensor& y) {
  std::unique_ptr<Plan>& kept =
      plans_[Key{pass, x.dtype(), has_bias, x.shape()[0], x.shape()[1], x.shape()[2], x.shape()[3],
                 w.shape()[0], window.kernel, window.stride, window.padding}];
  if (kept != nullptr) return *kept;
  auto plan = std::make_unique<Plan>();
  const DType dtype = x.dtype();
  const int in = static_cast<int>(x.shape()[3]), out = static_cast<int>(w.shape()[0]);
  Describe(plan->x, x);
  Describe(plan->y, y);
  LS_CUDNN(cudnnSetTensor4dDescriptor(plan->bias, CUDNN_TENSOR_NHWC, TypeOf(dtype), 1, out, 1, 1));
  LS_CUDNN(cudnnSetFilter4dDescriptor(plan->w, TypeOf(dtype), CUDNN_TENSOR_NHWC, out, in,
                                      window.kernel, window.kernel));
  LS_CUDNN(cudnnSetConvolution2dDescriptor(plan->convolution, window.padding, window.padding,
                                           window.stride, window.stride, 1, 1,
                                           CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  // The default takes TF32 for fp32.
  const bool exact = dtype == DType::kF32 && fp32_products_ == Fp32Products::kFp32;
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
      LS_CUDNN(cudnnGetConvolutionForwardAlgorithm_v7(handle_, plan->x, plan->w, plan->convolution,
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
          handle_, plan->w, plan->y, plan->convolution, plan->x,
          CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT, &returned, proposals.data()));
      const auto& chosen = Choose(proposals, returned, dtype, exact);
      math = chosen.mathType;
      plan->backward_input = chosen.algo;
      break;
    }
    case Pass::kBackwardWeight: {
      std::array<cudnnConvolutionBwdFilterAlgoPerf_t, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT>
          proposals;
      LS_CUDNN(cudnnGetConvolutionBackwardFilterAlgorithm_v7(
          handle_, plan->x, plan->y, plan->convolution, plan->w,
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
      LS_CUDNN(cudnnGetConvolutionForwardWorkspaceSize(handle_, plan->x, plan->w, plan->convolution,
                                                       plan->y, plan->forward, &plan->workspace));
      break;
    case Pass::kBackwardInput:
      LS_CUDNN(cudnnGetConvolutionBackwardDataWorkspaceSize(
          handle_, plan->w, plan->y, plan->convolution, plan->x, plan->backward_input,
          &plan->workspace));
      break;
    case Pass::kBackwardWeight:
      LS_CUDNN(cudnnGetConvolutionBackwardFilterWorkspaceSize(
          handle_, plan->x, plan->y, plan->convolution, plan->w, plan->backward_weight,
          &plan->workspace));
      break;
  }
  kept = std::move(plan);
  return *kept;
}

void Convolutions::Run(Allocator& allocator, Pass pass, const Window& window, const Tensor& x,
                       const Tensor& w, const Tensor& bias, const Tensor& y) {
  CHECK(x.dtype() == w.dtype() && w.dtype() == y.dtype());
  if (handle_ == nullptr) {
    LS_CUDNN(cudnnCreate(&handle_));
    LS_CUDNN(cudnnSetStream(handle_, context_.stream()));
  }
  Plan& plan = PlanOf(pass, window, x, w, bias.defined(), y);
  const Tensor workspace = Tensor::Empty(allocator, {static_cast<int64_t>(plan.workspace)},
                                         DType::kU8, MemoryClass::kWorkspace);
  const float one = 1, zero = 0;
  switch (pass) {
    case Pass::kForward:
      if (bias.defined()) {
        // cuDNN adds zero times a tensor of y's shape: y itself, which it does not read then.
        LS_CUDNN(cudnnConvolutionBiasActivationForward(
            handle_, &one, plan.x, x.raw(), plan.w, w.raw(), plan.convolution, plan.forward,
            workspace.raw(), plan.workspace, &zero, plan.y, y.raw(), plan.bias, bias.raw(),
            plan.identity, plan.y, y.raw()));
      } else {
        LS_CUDNN(cudnnConvolutionForward(handle_, &one, plan.x, x.raw(), plan.w, w.raw(),
                                         plan.convolution, plan.forward, workspace.raw(),
                                         plan.workspace, &zero, plan.y, y.raw()));
      }
      break;
    case Pass::kBackwardInput:
      LS_CUDNN(cudnnConvolutionBackwardData(handle_, &one, plan.w, w.raw(), plan.y, y.raw(),
                                            plan.convolution, plan.backward_input, workspace.raw(),
                                            plan.workspace, &zero, plan.x, x.raw()));
      break;
    case Pass::kBackwardWeight:
      LS_CUDNN(cudnnConvolutionBackwardFilter(
          handle_, &one, plan.x, x.raw(), plan.y, y.raw(), plan.convolution, plan.backward_weight,
          workspace.raw(), plan.workspace, &zero, plan.w, w.raw()));
      break;
  }
}

}  // namespace lockstep::cuda
