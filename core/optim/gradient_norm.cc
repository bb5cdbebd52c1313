#include "core/optim/gradient_norm.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep {

double GradientNorm(Kernels& kernels, const std::vector<TrainedTensor>& trained,
                    const NormReduction& reduction) {
  float largest = 0;
  for (const TrainedTensor& tensor : trained) {
    largest = std::max(largest, kernels.MaxMagnitude(tensor.gradient));
  }
  largest = reduction.max(largest);
  if (!std::isfinite(largest)) return std::numeric_limits<double>::infinity();
  // Squares of what is smaller than this are lost even in double; the norm is zero for any purpose.
  if (largest < std::numeric_limits<float>::min()) return 0;
  SquareSum sum;
  for (const TrainedTensor& tensor : trained) {
    if (tensor.in_norm) sum.Add(kernels.SumOfSquares(tensor.gradient, largest));
  }
  return std::sqrt(reduction.sum(sum).Total());
}

float ClipFactor(double norm, double max_norm) {
  if (max_norm <= 0) return 1;
  return static_cast<float>(std::min(1.0, max_norm / (norm + 1e-6)));
}

}  // namespace lockstep
