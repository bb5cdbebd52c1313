#include "core/kernels/cuda/poolings.h"

#include <utility>

#include "glog/logging.h"

namespace lockstep::cuda {
namespace {

using PoolingDescriptor = CudnnDescriptor<cudnnPoolingDescriptor_t, cudnnCreatePoolingDescriptor,
                                          cudnnDestroyPoolingDescriptor>;

constexpr float kOne = 1, kZero = 0;

}  // namespace

struct Poolings::Plan {
  PoolingDescriptor pooling;
  TensorDescriptor x, y;
};

Poolings::Poolings(Cudnn& cudnn) : cudnn_(cudnn) {}
Poolings::~Poolings() = default;

Poolings::Frame Poolings::Maximum(const Window& window) {
  // Of what equals the maximum, the first gets the gradient. CUDNN_POOLING_MAX would not repeat its
  // bits.
  return {.mode = CUDNN_POOLING_MAX_DETERMINISTIC,
          .height = window.kernel,
          .width = window.kernel,
          .stride = window.stride,
          .padding = window.padding};
}

Poolings::Frame Poolings::WholeOf(const Tensor& x) {
  const Images images = ImagesOf(x);
  return {.mode = CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING,
          .height = images.height,
          .width = images.width,
          .stride = 1,
          .padding = 0};
}

const Poolings::Plan& Poolings::PlanOf(const Frame& frame, const Tensor& x, const Tensor& y) {
  CHECK(x.dtype() == y.dtype()) << Name(x.dtype()) << " and " << Name(y.dtype());
  const Images images = ImagesOf(x);
  std::unique_ptr<Plan>& kept = plans_[{frame, x.dtype(), images}];
  if (kept != nullptr) return *kept;
  auto plan = std::make_unique<Plan>();
  const auto height = static_cast<int>(frame.height), width = static_cast<int>(frame.width);
  const auto stride = static_cast<int>(frame.stride), padding = static_cast<int>(frame.padding);
  LS_CUDNN(cudnnSetPooling2dDescriptor(plan->pooling, frame.mode, CUDNN_PROPAGATE_NAN, height,
                                       width, padding, padding, stride, stride));
  const auto output = [&](int64_t extent, int64_t kernel) {
    return (extent + 2 * frame.padding - kernel) / frame.stride + 1;
  };
  const Images pooled = {.batch = images.batch,
                         .height = output(images.height, frame.height),
                         .width = output(images.width, frame.width),
                         .channels = images.channels};
  CHECK_EQ(y.elements(), pooled.batch * pooled.height * pooled.width * pooled.channels);
  Describe(plan->x, x.dtype(), images);
  Describe(plan->y, x.dtype(), pooled);
  kept = std::move(plan);
  return *kept;
}

void Poolings::Forward(const Frame& frame, const Tensor& x, const Tensor& y) {
  const Plan& plan = PlanOf(frame, x, y);
  LS_CUDNN(cudnnPoolingForward(cudnn_.handle(), plan.pooling, &kOne, plan.x, x.raw(), &kZero,
                               plan.y, y.raw()));
}

void Poolings::Backward(const Frame& frame, const Tensor& x, const Tensor& y, const Tensor& dy,
                        const Tensor& dx) {
  CHECK(dy.dtype() == dx.dtype()) << Name(dy.dtype()) << " and " << Name(dx.dtype());
  const Plan& plan = PlanOf(frame, x, y);
  LS_CUDNN(cudnnPoolingBackward(cudnn_.handle(), plan.pooling, &kOne, plan.y, y.raw(), plan.y,
                                dy.raw(), plan.x, x.raw(), &kZero, plan.x, dx.raw()));
}

void Poolings::Max(const Tensor& x, const Window& window, const Tensor& y) {
  Forward(Maximum(window), x, y);
}

void Poolings::MaxBackward(const Tensor& x, const Window& window, const Tensor& y, const Tensor& dy,
                           const Tensor& dx) {
  Backward(Maximum(window), x, y, dy, dx);
}

void Poolings::GlobalAverage(const Tensor& x, const Tensor& y) { Forward(WholeOf(x), x, y); }

void Poolings::GlobalAverageBackward(const Tensor& dy, const Tensor& dx) {
  // The values do not matter to an average, but cuDNN wants to be given some: memory of their size.
  Backward(WholeOf(dx), dx, dy, dy, dx);
}

}  // namespace lockstep::cuda
