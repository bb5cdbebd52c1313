#pragma once

#include <vector>

#include "core/comm/communicator.h"
#include "core/nn/split.h"

namespace lockstep {

// The ledger's label for sums of the gradients of parameters that all ranks hold.
inline constexpr char kReplicatedGradients[] = "replicated gradients";
// Its label for how many rows of each rank's tokens go to each expert.
inline constexpr char kRoutedRows[] = "routed rows";

// Ranks that compute layers together (Shoeybi et al., "Megatron-LM", 2019), over a communicator:
// what moves in forward is booked as "activations", in backward as "activation gradients", what a
// cross entropy reduces as "cross entropy", partial gradients as "replicated gradients". A
// single rank moves nothing.
class TensorGroup : public SplitGroup {
 public:
  enum class Sequence { kWhole, kSplit };

  // The communicator outlives the group.
  TensorGroup(Communicator& ranks, Sequence sequence) : ranks_(ranks), sequence_(sequence) {}

  int size() const override { return ranks_.size(); }
  int index() const override { return ranks_.rank(); }
  bool splits_sequence() const override { return sequence_ == Sequence::kSplit; }

  Variable Enter(Pass& pass, const Variable& x) override;
  Variable Leave(Pass& pass, Variable x) override;
  Variable GatherColumns(Pass& pass, const Variable& x,
                         const std::vector<int64_t>& widths) override;
  std::vector<int64_t> GatherNumbers(const std::vector<int64_t>& numbers) const override;
  void Reduce(const Tensor& x, Reduction reduction) override;
  void SumGradient(const Tensor& gradient) override;

 private:
  // The sum of all members' x, in its memory where nobody else holds it.
  Tensor Sum(Kernels& kernels, const Tensor& x, const char* label);
  // From all tokens to the own ones and back; `all` and `own` end in [..., width].
  Tensor Scatter(Kernels& kernels, const Tensor& all, const char* label);
  Tensor Gather(Kernels& kernels, const Tensor& own, const Shape& all, const char* label);

  Communicator& ranks_;
  Sequence sequence_;
};

}  // namespace lockstep
