#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "core/comm/work.h"
#include "strategies/data_parallel/unit.h"

namespace lockstep {

// Sums of units' gradients over the ranks, which go on while backward does: over the ranks that
// hold shards, then over the replicas of each shard.
class GradientSums {
 public:
  // The most reduce-scatters under way at a time, each of which keeps its unit's whole gradients:
  // the next one may begin before the one before has ended.
  static constexpr size_t kUnderWay = 2;

  // Begins to sum a unit's complete gradients. Waits first where kUnderWay are under way.
  void Begin(FsdpUnit& unit);
  // Returns when all sums that have begun are there. Throws StatusException.
  void Await();

 private:
  // Waits for the first reduce-scatter under way, and begins to sum over the replicas.
  void Advance();

  std::deque<FsdpUnit*> under_way_;
  std::vector<Work> over_replicas_;
};

}  // namespace lockstep
