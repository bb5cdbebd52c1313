#include "tools/divergence/testing/faulty_kernels.h"

#include <algorithm>

namespace lockstep {

float FaultyKernels::LossFactor(float factor, const Tensor& targets) const {
  return faults_.loss_factor ? faults_.loss_factor(factor, targets.elements()) : factor;
}

void FaultyKernels::SoftmaxCrossEntropy(const Tensor& logits, int64_t classes,
                                        const Tensor& targets, float factor, const Tensor& losses,
                                        const Tensor& dlogits) {
  CpuKernels::SoftmaxCrossEntropy(logits, classes, targets, LossFactor(factor, targets), losses,
                                  dlogits);
}

void FaultyKernels::SplitCrossEntropy(const Tensor& logits, const Range& classes,
                                      const Tensor& largest, const Tensor& sums, const Tensor& gaps,
                                      const Tensor& targets, float factor, const Tensor& losses,
                                      const Tensor& dlogits) {
  CpuKernels::SplitCrossEntropy(logits, classes, largest, sums, gaps, targets,
                                LossFactor(factor, targets), losses, dlogits);
}

void FaultyKernels::ApplyDropout(const Dropout& dropout, int64_t first_element, const Tensor& x,
                                 const Tensor& y) {
  const int64_t first =
      faults_.dropout_element ? faults_.dropout_element(first_element) : first_element;
  CpuKernels::ApplyDropout(dropout, first, x, y);
}

AttentionPart FaultyKernels::PartOf(AttentionPart part) const {
  if (faults_.first_query_leaf) part.queries.first = faults_.first_query_leaf(part.queries.first);
  return part;
}

void FaultyKernels::AttentionOfPart(const Attention& attention, const AttentionPart& part,
                                    const Tensor& queries, const Tensor& keys,
                                    const AttentionSums& to) {
  CpuKernels::AttentionOfPart(attention, PartOf(part), queries, keys, to);
}

void FaultyKernels::AttentionOfPartBackward(const Attention& attention, const AttentionPart& part,
                                            const Tensor& queries, const Tensor& keys,
                                            const Tensor& y, const Tensor& log_sum_exp,
                                            const Tensor& dy, const Tensor& dqueries,
                                            const Tensor& dkeys) {
  CpuKernels::AttentionOfPartBackward(attention, PartOf(part), queries, keys, y, log_sum_exp, dy,
                                      dqueries, dkeys);
}

Tensor FaultyKernels::BatchNorm(const Tensor& x, const Tensor& scale, const Tensor& shift,
                                const Tensor& residual, float epsilon, Activation activation,
                                const Tensor& y, const Tensor& mean, const Tensor& variance) {
  Tensor kept =
      CpuKernels::BatchNorm(x, scale, shift, residual, epsilon, activation, y, mean, variance);
  if (!faults_.statistics_of_the_batch_before) return kept;
  const auto values = [](const Tensor& tensor) {
    return std::vector<float>(tensor.data<float>(), tensor.data<float>() + tensor.elements());
  };
  Statistics own = {.mean = values(mean), .variance = values(variance)};
  if (const auto before = before_.find(scale.raw()); before != before_.end()) {
    std::copy(before->second.mean.begin(), before->second.mean.end(), mean.data<float>());
    std::copy(before->second.variance.begin(), before->second.variance.end(),
              variance.data<float>());
    BatchNormInference(x, scale, shift, residual, mean, variance, epsilon, activation, y);
  }
  before_[scale.raw()] = std::move(own);
  return kept;
}

void FaultyKernels::UpdateParameters(const OptimizerRule& optimizer, const OptimizerStep& step,
                                     absl::Span<const OptimizedTensor> tensors) {
  OptimizerStep wrong_step = step;
  if (faults_.optimizer_step) faults_.optimizer_step(wrong_step);
  std::vector<OptimizedTensor> all(tensors.begin(), tensors.end());
  for (OptimizedTensor& tensor : all) tensor.decays = tensor.decays || faults_.all_decay;
  CpuKernels::UpdateParameters(optimizer, wrong_step, all);
}

}  // namespace lockstep
