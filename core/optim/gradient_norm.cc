#include "core/optim/gradient_norm.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep {

double GradientNorm(Kernels& kernels, const std::vector<TrainedTensor>& trained,
                    const NormReduction& reduction) {
  std::vector<Tensor> gradients, in_norm;
  for (const TrainedTensor& tensor : trained) {
    gradients.push_back(tensor.gradient);
    if (tensor.in_norm) in_norm.push_back(tensor.gradient);
  }
  const float largest = reduction.max(kernels.MaxMagnitudeOfAll(gradients));
  if (!std::isfinite(largest)) return std::numeric_limits<double>::infinity();
  // Squares of what is smaller than this are lost even in double; the norm is zero for any purpose.
  if (largest < std::numeric_limits<float>::min()) return 0;
  return std::sqrt(reduction.sum(kernels.SumOfSquaresOfAll(in_norm, largest)).Total());
}

float ClipFactor(double norm, double max_norm) {
  if (max_norm <= 0) return 1;
  return static_cast<float>(std::min(1.0, max_norm / (norm + 1e-6)));
}

}  // namespace lockstep
