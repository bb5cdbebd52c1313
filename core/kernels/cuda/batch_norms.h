#pragma once

#include <map>
#include <memory>
#include <tuple>

#include "core/kernels/cuda/cudnn.h"
#include "core/kernels/kernels.h"

namespace lockstep::cuda {

// Batch normalisation by cuDNN over all but the last dimension, by algorithms that repeat their
// bits. x, y and their gradients have one dtype; all else is fp32, [channels]. What is described
// and found out for a shape is kept for the next time.
class BatchNorms {
 public:
  // The rank's cuDNN outlives it.
  explicit BatchNorms(Cudnn& cudnn);
  ~BatchNorms();
  BatchNorms(const BatchNorms&) = delete;
  BatchNorms& operator=(const BatchNorms&) = delete;

  // y = (x - mean) * inverse_stddev * scale + shift with this batch's mean and inverse standard
  // deviation, 1 / sqrt(variance + epsilon), which are written. Returns what backward must be
  // given besides; undefined: nothing.
  Tensor Forward(Allocator& allocator, const Tensor& x, const Tensor& scale, const Tensor& shift,
                 float epsilon, const Tensor& y, const Tensor& mean, const Tensor& inverse_stddev);
  // The same with given statistics.
  void Inference(const Tensor& x, const Tensor& scale, const Tensor& shift, const Tensor& mean,
                 const Tensor& variance, float epsilon, const Tensor& y);
  // `kept`: what Forward has returned. dx is not dy.
  void Backward(Allocator& allocator, const Tensor& x, const Tensor& scale, const Tensor& mean,
                const Tensor& inverse_stddev, const Tensor& kept, float epsilon, const Tensor& dy,
                const Tensor& dx, Write write, const Tensor& dscale, const Tensor& dshift);

 private:
  enum class Use { kTraining, kInference };
  struct Plan;

  const Plan& PlanOf(Use use, const Tensor& x);

  Cudnn& cudnn_;
  std::map<std::tuple<Use, DType, Images>, std::unique_ptr<Plan>> plans_;
};

}  // namespace lockstep::cuda
