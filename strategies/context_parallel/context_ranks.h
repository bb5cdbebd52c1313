#pragma once

#include <cstdint>
#include <vector>

#include "core/comm/communicator.h"
#include "core/nn/context.h"

namespace lockstep {

// Labels of the ledger: keys and values on their way to the queries of other ranks, the way back of
// their gradients; heads between the ranks of their tokens and those that attend with them, and
// their gradients; sums of the gradients that the ranks' tokens give; and how many tokens have
// chosen each expert.
inline constexpr char kKeysAndValues[] = "keys and values";
inline constexpr char kKeyAndValueGradients[] = "key and value gradients";
inline constexpr char kHeads[] = "attention heads";
inline constexpr char kHeadGradients[] = "attention head gradients";
inline constexpr char kTokenGradients[] = "token gradients";
inline constexpr char kExpertChoices[] = "expert choices";

// The ranks along cp, over a communicator.
class ContextRanks : public ContextGroup {
 public:
  // The communicator outlives the group.
  explicit ContextRanks(Communicator& ranks) : ranks_(ranks) {}

  int size() const override { return ranks_.size(); }
  int index() const override { return ranks_.rank(); }
  void SumGradient(const Tensor& gradient) override;
  std::vector<int64_t> GatherNumbers(const std::vector<int64_t>& numbers) override;

 protected:
  Communicator& ranks() const { return ranks_; }

 private:
  Communicator& ranks_;
};

}  // namespace lockstep
