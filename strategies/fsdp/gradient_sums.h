#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "core/comm/work.h"
#include "strategies/fsdp/unit.h"

namespace lockstep {

// When the gradients of units are summed over the ranks: behind the backward that completes them,
// while it goes on.
class GradientSums {
 public:
  // Sums on their way at one time: the next may begin while the one before has not ended.
  static constexpr size_t kUnderWay = 2;

  explicit GradientSums(int64_t micro_batches) : micro_batches_(micro_batches) {}

  // Before a micro-batch of the rank, counted from 0 in each step.
  void Begin(int64_t micro_batch) { micro_batch_ = micro_batch; }
  // Backward reaches the first block that uses a unit, or has left the last.
  void Enter(FsdpUnit& unit);
  void Leave(FsdpUnit& unit);
  // At the end of a step: returns when all sums are there.
  void Await();

 private:
  bool last() const { return micro_batch_ + 1 == micro_batches_; }
  // Waits for the first one on its way, and begins its sum over the replicas.
  void Advance();

  const int64_t micro_batches_;
  int64_t micro_batch_ = 0;
  std::deque<FsdpUnit*> under_way_;
  std::vector<Work> over_replicas_;
};

}  // namespace lockstep
