#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "core/comm/work.h"
#include "strategies/fsdp/options.h"
#include "strategies/fsdp/peak_memory.h"
#include "strategies/fsdp/unit.h"

namespace lockstep {

// When the gradients of units are summed over the ranks: behind the backward that completes them,
// while it goes on.
class GradientSums {
 public:
  GradientSums(Accumulation accumulation, int64_t micro_batches)
      : accumulation_(accumulation), micro_batches_(micro_batches) {}

  // Before a micro-batch of the rank, counted from 0 in each step.
  void Begin(int64_t micro_batch) { micro_batch_ = micro_batch; }
  // Backward reaches the first block that uses a unit, or has left the last.
  void Enter(FsdpUnit& unit);
  void Leave(FsdpUnit& unit);
  // At the end of a step: returns when all sums are there.
  void Await();

  // How often a step sums each unit over the ranks, and the most bytes of gradients beside the
  // shards.
  int64_t sums_per_step() const;
  int64_t PeakBytes(const std::vector<UnitNeeds>& units) const;

 private:
  // A sum that is on its way.
  struct Sum {
    FsdpUnit* unit;
    int64_t micro_batch;
  };

  bool IsLast(int64_t micro_batch) const { return micro_batch + 1 == micro_batches_; }
  // Waits for the first one on its way; the last of a unit in a step goes on over the replicas.
  void Advance();

  const Accumulation accumulation_;
  const int64_t micro_batches_;
  int64_t micro_batch_ = 0;
  std::deque<Sum> under_way_;
  std::vector<Work> over_replicas_;
};

}  // namespace lockstep
