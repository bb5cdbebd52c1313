#pragma once

#include <cstdint>
#include <optional>

#include "core/data/prefetch.h"
#include "core/run/host_batches.h"
#include "core/run/rank.h"
#include "core/run/run.h"
#include "core/run/strategy.h"

namespace lockstep {

// The prefetcher as strategies see it: the micro-batches `range` of each step of a run, from
// `first_step` on, in the rank's memory. Waiting for it counts as time for data, and what it does
// meanwhile is in the trace.
class PrefetchedBatches : public BatchSource {
 public:
  // The run and the rank outlive it.
  PrefetchedBatches(const Run& run, Rank& rank, int64_t first_step, const MicroBatchRange& range);

  Batch Next() override;

 private:
  StepTimer& timer_;
  HostBatches host_;
  std::optional<Prefetcher> prefetcher_;  // none where no batch is asked for
};

}  // namespace lockstep
