// Batches on their way from the data set to where a rank computes.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/token_order.h"
#include "core/config/settings.h"
#include "core/data/dataset.h"
#include "core/data/prefetch.h"
#include "core/kernels/kernels.h"
#include "core/run/leg/training_run.h"
#include "core/run/strategy/rank.h"
#include "core/run/strategy/strategy.h"

namespace lockstep {

// The token leaves that a rank takes of each sequence.
TokenOrder TokensOf(const Settings& settings, const Rank& rank);

// Data sets write host memory. Where a rank computes elsewhere, this is the way between: memory for
// them to write, and the copy to the device, for which the rank's thread does not wait; and to
// where the tokens of sequences that are cut into leaves lie (core/base/token_order.h).
class HostBatches {
 public:
  // `tokens`: how many leaves each sequence is cut into, and which of them the rank takes; one
  // leaf: samples stay as they are. The kernels outlive it.
  HostBatches(Kernels& kernels, const TokenOrder& tokens) : kernels_(kernels), tokens_(tokens) {}

  // Host memory: the rank's own where it computes there, else memory that its device reads by
  // itself and that no books of the rank count. Lives as long as the kernels.
  Allocator& allocator() { return kernels_.host_allocator(); }

  // A batch of allocator()'s memory, in the rank's memory: itself, or a copy that may still be on
  // its way, which the rank's kernels wait for. Where sequences are cut into leaves, inputs and
  // targets are [the rank's leaves * samples, tokens of a leaf]; documents stay as they are.
  Batch Deliver(Batch batch);

 private:
  Tensor InOrderOfLeaves(const Tensor& tokens);

  Kernels& kernels_;
  const TokenOrder tokens_;
};

// The prefetcher as strategies see it: those micro-batches of each step of a run, from
// `first_step` to before `end_step`, in the rank's memory. Waiting for it counts as time for data,
// and what it does meanwhile is in the trace.
class PrefetchedBatches : public BatchSource {
 public:
  // The run and the rank outlive it.
  PrefetchedBatches(const TrainingRun& run, Rank& rank, int64_t first_step, int64_t end_step,
                    std::vector<int64_t> micro_batches);

  Batch Next() override;
  // On a GPU, uploads the next step's first batch now, so that the copy goes on beside the passes.
  // Does nothing on the CPU.
  void FetchAhead() override;

 private:
  absl::StatusOr<Batch> Fetch();

  StepTimer& timer_;
  HostBatches host_;
  const bool is_on_gpu_;
  std::optional<Prefetcher> prefetcher_;  // none where no batch is asked for
  std::optional<absl::StatusOr<Batch>> ahead_;
};

}  // namespace lockstep
