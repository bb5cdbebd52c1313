// Kernels that compute something else than they are asked for.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "core/kernels/cpu/cpu_kernels.h"

namespace lockstep {

// What goes wrong. All members may be left out; the defaults change nothing.
struct KernelFaults {
  // What the losses of so many rows are multiplied by for the gradients, in place of `factor`.
  std::function<float(float factor, int64_t rows)> loss_factor = nullptr;
  // Where a dropout mask begins, in place of `first_element`.
  std::function<int64_t(int64_t first_element)> dropout_element = nullptr;
  // The first leaf of the queries that a rank along cp has, in place of `leaf`.
  std::function<int64_t(int64_t leaf)> first_query_leaf = nullptr;
  // Whether each batch normalisation uses the statistics of the micro-batch before.
  bool statistics_of_the_batch_before = false;
  // The step of an optimizer.
  std::function<void(OptimizerStep&)> optimizer_step = nullptr;
  // Whether weight decay applies to all parameters.
  bool all_decay = false;
};

class FaultyKernels final : public CpuKernels {
 public:
  // The allocator outlives the kernels and all tensors made with them.
  FaultyKernels(Allocator& allocator, InstructionSet instructions, KernelFaults faults)
      : CpuKernels(allocator, instructions), faults_(std::move(faults)) {}

  void SoftmaxCrossEntropy(const Tensor& logits, int64_t classes, const Tensor& targets,
                           float factor, const Tensor& losses, const Tensor& dlogits) override;
  void SplitCrossEntropy(const Tensor& logits, const Range& classes, const Tensor& largest,
                         const Tensor& sums, const Tensor& gaps, const Tensor& targets,
                         float factor, const Tensor& losses, const Tensor& dlogits) override;
  void ApplyDropout(const Dropout& dropout, int64_t first_element, const Tensor& x,
                    const Tensor& y) override;
  void AttentionOfPart(const Attention& attention, const AttentionPart& part, const Tensor& queries,
                       const Tensor& keys, const AttentionSums& to) override;
  void AttentionOfPartBackward(const Attention& attention, const AttentionPart& part,
                               const Tensor& queries, const Tensor& keys, const Tensor& y,
                               const Tensor& log_sum_exp, const Tensor& dy, const Tensor& dqueries,
                               const Tensor& dkeys) override;
  Tensor BatchNorm(const Tensor& x, const Tensor& scale, const Tensor& shift,
                   const Tensor& residual, float epsilon, Activation activation, const Tensor& y,
                   const Tensor& mean, const Tensor& variance) override;
  void UpdateParameters(const OptimizerRule& optimizer, const OptimizerStep& step,
                        absl::Span<const OptimizedTensor> tensors) override;

 private:
  struct Statistics {
    std::vector<float> mean, variance;
  };

  float LossFactor(float factor, const Tensor& targets) const;
  AttentionPart PartOf(AttentionPart part) const;

  const KernelFaults faults_;
  std::map<const void*, Statistics> before_;  // by the scale of the layer
};

}  // namespace lockstep
