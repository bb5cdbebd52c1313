#pragma once

#include <map>
#include <memory>
#include <tuple>

#include "core/kernels/cuda/cudnn.h"
#include "core/kernels/kernels.h"

namespace lockstep::cuda {

// Pooling by cuDNN in channels-last layout, by algorithms that repeat their bits; as in
// core/kernels/kernels.h. What is described for a pooling is kept for the next of the same kind.
class Poolings {
 public:
  // The rank's cuDNN outlives it.
  explicit Poolings(Cudnn& cudnn);
  ~Poolings();
  Poolings(const Poolings&) = delete;
  Poolings& operator=(const Poolings&) = delete;

  void Max(const Tensor& x, const Window& window, const Tensor& y);
  void MaxBackward(const Tensor& x, const Window& window, const Tensor& y, const Tensor& dy,
                   const Tensor& dx);
  // y, dy: [batch, channels]
  void GlobalAverage(const Tensor& x, const Tensor& y);
  void GlobalAverageBackward(const Tensor& dy, const Tensor& dx);

 private:
  // What cuDNN slides over images.
  struct Frame {
    cudnnPoolingMode_t mode;
    int64_t height, width, stride, padding;

    auto operator<=>(const Frame&) const = default;
  };
  struct Plan;

  static Frame WholeOf(const Tensor& x);
  static Frame Maximum(const Window& window);

  const Plan& PlanOf(const Frame& frame, const Tensor& x, const Tensor& y);
  void Forward(const Frame& frame, const Tensor& x, const Tensor& y);
  void Backward(const Frame& frame, const Tensor& x, const Tensor& y, const Tensor& dy,
                const Tensor& dx);

  Cudnn& cudnn_;
  std::map<std::tuple<Frame, DType, Images>, std::unique_ptr<Plan>> plans_;
};

}  // namespace lockstep::cuda
