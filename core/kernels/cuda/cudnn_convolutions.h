#pragma once

#include <map>
#include <memory>
#include <tuple>

#include "core/kernels/cuda/cudnn.h"
#include "core/kernels/kernels.h"

namespace lockstep::cuda {

// Convolutions by cuDNN in channels-last layout, added up in fp32 whatever the operands are stored
// in, by algorithms that repeat their bits. What it finds out about a convolution is kept for the
// next of the same kind.
class CudnnConvolutions {
 public:
  enum class Pass {
    kForward,
    kBackwardInput,
    kBackwardWeight,
    kBackwardWeightOfWidened,  // the operands, fp32, are copies of 16-bit ones
  };

  // Whether a pass over tensors of `dtype` may round its operands to TF32, for which there are
  // tensor cores: where that is asked for, and where it changes nothing, since TF32 holds each
  // number of fp16 and bf16.
  static bool AllowsTf32(Pass pass, DType dtype, Fp32Products fp32_products);

  // The rank's cuDNN outlives it.
  CudnnConvolutions(Cudnn& cudnn, Fp32Products fp32_products);
  ~CudnnConvolutions();
  CudnnConvolutions(const CudnnConvolutions&) = delete;
  CudnnConvolutions& operator=(const CudnnConvolutions&) = delete;

  // Queues one of the passes between x [batch, height, width, in], w [out, kernel, kernel, in] and
  // y [batch, h', w', out], all of one dtype; backward, x, w and y are their gradients where the
  // pass writes or reads these. bias[out], forward alone, may be undefined. Returns whether a bias,
  // if there is one, is added: cuDNN has no convolution with a bias for some shapes, and the caller
  // adds it behind one without.
  [[nodiscard]] bool Run(Allocator& allocator, Pass pass, const Window& window, const Tensor& x,
                         const Tensor& w, const Tensor& bias, const Tensor& y);

 private:
  struct Plan;
  using Key =
      std::tuple<Pass, DType, bool, int64_t, int64_t, int64_t, int64_t, int64_t, int, int, int>;

  // The fused convolution's status; not to be called again once cuDNN does not support it.
  cudnnStatus_t ForwardWithBias(const Plan& plan, const Tensor& workspace, const Tensor& x,
                                const Tensor& w, const Tensor& bias, const Tensor& y);
  Plan& PlanOf(Pass pass, const Window& window, const Tensor& x, const Tensor& w, bool has_bias,
               const Tensor& y);

  Cudnn& cudnn_;
  const Fp32Products fp32_products_;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace lockstep::cuda
