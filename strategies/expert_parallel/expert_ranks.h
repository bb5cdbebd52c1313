#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/nn/experts.h"

namespace lockstep {

// Labels of the ledger: how many rows each rank sends to each expert; rows on their way to the
// experts and back, and their gradients.
inline constexpr char kExpertCounts[] = "expert counts";
inline constexpr char kExpertRows[] = "expert rows";
inline constexpr char kExpertRowGradients[] = "expert row gradients";

// The ranks along ep, over a communicator: each token's row goes to the rank of each expert that
// was chosen for it, and what the expert makes of it goes back (Lepikhin et al., "GShard", 2020).
// Ranks tell each other first how many rows come. Rows then travel as messages between each two
// ranks, all under way at once.
class ExpertRanks : public ExpertGroup {
 public:
  // Called by all members of `ranks`, which outlives the group. Throws StatusException.
  explicit ExpertRanks(Communicator& ranks);

  int size() const override { return ranks_.size(); }
  int index() const override { return ranks_.rank(); }
  Received ToExperts(Pass& pass, const std::string& layer, const Variable& sent,
                     const SharedRanges& rows) override;
  Variable ToTokens(Pass& pass, const Variable& made, const Received& received) override;

  // Rows that a rank has sent to the experts of others, and has got from others for its own.
  struct Rows {
    double sent = 0, received = 0;
  };
  // Rows of a layer for each micro-batch that this rank has in a step, in order, averaged over all
  // training steps so far. Empty before the first step.
  std::vector<Rows> MeanRows(const std::string& layer) const;

 private:
  struct Counts {
    int64_t sent = 0, received = 0, times = 0;
  };

  // Rows of a dispatched tensor that go to a rank.
  Range To(int rank, const ExpertRanges& rows) const;
  // Moves rows from their place in `from` to their place in `to` of other ranks, all at once.
  void Move(Kernels& kernels, const Tensor& from, const std::function<Range(int rank)>& out,
            const Tensor& to, const std::function<Range(int rank)>& in, const char* label);
  Tensor ToExperts(Kernels& kernels, const Tensor& x, const Received& rows, const char* label);
  Tensor ToTokens(Kernels& kernels, const Tensor& x, const Received& rows, const char* label);

  Communicator& ranks_;
  std::map<std::string, std::map<int64_t, Counts>> counts_;  // by layer and micro-batch
};

}  // namespace lockstep
