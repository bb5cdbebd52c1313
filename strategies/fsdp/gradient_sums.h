#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "core/comm/work.h"
#include "strategies/fsdp/peak_memory.h"
#include "strategies/fsdp/unit.h"

namespace lockstep {

// When the gradients of units are summed over the ranks: behind the backward that completes them,
// while it goes on.
class GradientSums {
 public:
  // Each unit is summed once a step, behind the last of its rank's `micro_batches`.
  explicit GradientSums(int64_t micro_batches) : micro_batches_(micro_batches) {}

  // Before a micro-batch of the rank, counted from 0 in each step.
  void Begin(int64_t micro_batch) { micro_batch_ = micro_batch; }
  // Backward reaches the first block that uses a unit, or has left the last.
  void Enter(FsdpUnit& unit);
  void Leave(FsdpUnit& unit);
  // At the end of a step: returns when all sums are there.
  void Await();

  // The most bytes of gradients beside the shards.
  int64_t PeakBytes(const std::vector<UnitNeeds>& units) const;

 private:
  // Waits for the first sum under way, which goes on over the replicas.
  void Advance();

  const int64_t micro_batches_;
  int64_t micro_batch_ = 0;
  std::deque<FsdpUnit*> under_way_;
  std::vector<Work> over_replicas_;
};

}  // namespace lockstep
