#include "core/autograd/leaf.h"

#include "core/kernels/feature_leaves.h"
#include "glog/logging.h"

namespace lockstep {

Leaf::Destination Leaf::NextContribution(Kernels& kernels, size_t feature_leaf, size_t leaves) {
  if (leaves == 1) return NextContribution(kernels);
  if (feature_leaves_.empty()) {
    feature_leaves_.resize(leaves);
    for (Leaf& accumulator : feature_leaves_) {
      accumulator.gradient = kernels.Empty(value.shape(), gradient_dtype, MemoryClass::kGradients);
    }
  }
  CHECK_EQ(feature_leaves_.size(), leaves);
  return feature_leaves_[feature_leaf].NextContribution(kernels);
}

void Leaf::SumFeatureLeaves(Kernels& kernels) {
  if (feature_leaves_.empty()) return;
  const Tensor sum =
      SumOverLeaves(kernels, static_cast<int64_t>(feature_leaves_.size()), [&](int64_t i) {
        const Leaf& accumulator = feature_leaves_[static_cast<size_t>(i)];
        CHECK(accumulator.has_gradient()) << "a feature leaf without its contribution";
        return accumulator.gradient;
      });
  const auto [destination, write] = NextContribution(kernels);
  CHECK(write == Write::kOverwrite) << "contributions beside those of feature leaves";
  kernels.Copy(sum, destination);
  feature_leaves_.clear();
}

}  // namespace lockstep
