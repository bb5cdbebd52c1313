#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/checkpoint/checkpoint_costs.h"
#include "core/comm/comm_totals.h"
#include "core/comm/rank_handle.h"
#include "core/report/block_profile.h"
#include "core/report/cost_prediction.h"
#include "core/report/results.h"
#include "core/report/step_timer.h"
#include "core/report/straggler.h"
#include "core/report/trace.h"
#include "core/tensor/memory.h"

namespace lockstep {

// A change of mesh in mid-run.
struct MeshChange {
  int64_t steps = 0;     // behind it
  std::string from, to;  // strategy and mesh
  // From the end of one step until the state is in its new place, with the wait for a checkpoint
  // that was still being written. Buffers of the next leg's checkpoints and copies come after it.
  double seconds = 0;
  // Payload of the state that ranks sent each other, all together: by the two layouts, and by the
  // ledgers.
  int64_t planned_bytes = 0, sent_bytes = 0;
};

// The routing of a training step, or of a batch that was evaluated: see RoutingNotes.
struct RoutedStep {
  enum class Kind { kTraining, kEvaluation };
  Kind kind = Kind::kTraining;
  std::vector<std::vector<int64_t>> numbers;
};

// What checks for wrong bits (guard.every) have cost a rank in this attempt.
struct GuardCosts {
  int64_t steps = 0;  // that were checked
  // What is done beside the steps: they are repeated, and states, replicas and validations are
  // compared. Hashes within a checked step are among the step's own times.
  int64_t nanos = 0;
};

// What a rank reports when training is over. In a run with legs, times, memory, traffic and
// prediction are those of the last leg.
struct RankReport {
  TraceRecord trace;
  // What ranks traced that the last leg leaves idle; in the first report alone (KeepLastLeg).
  std::vector<TraceRecord> idle_traces;
  StepTimes times;             // added up over `measured_steps`
  int64_t measured_steps = 0;  // without the first ones, which warm up
  double median_step_seconds = 0;
  int64_t kernel_nanos = 0;  // of `times`: inside kernels
  MemoryBooks memory;        // peaks over the steps
  // Steps of a mixture of experts in which classes of memory came to their peaks.
  std::vector<RoutedStep> routed;
  CommTotals traffic;        // of all steps
  CommTotals start_traffic;  // before the first step of this attempt, or leg
  int64_t steps = 0;         // run here
  int64_t steps_behind = 0;  // of the whole run, with those before this attempt
  bool ended_early = false;  // validation.patience has ended the run before its last step
  std::vector<MeshChange> changes;
  std::vector<SlowRank> slow_ranks;  // in this attempt, by rank; the same on all ranks
  CostPrediction prediction;
  // By block, where the strategy asked for them; the same on all ranks.
  std::vector<BlockProfile> profiles;
  std::vector<double> losses;  // of the steps run here; the same on all ranks
  double loss_scale = 1;       // of the last step
  int64_t skipped_steps = 0;   // of those run here
  std::optional<ValidationResult> validation_at_start;  // if asked for, and the run began here
  ValidationResult validation;
  CheckpointCosts checkpoints;  // of those written beside the steps
  GuardCosts guard;             // which `times` leave out, but for hashes within steps
  // Hash of the bits of the parameters and buffers that this rank holds at the end.
  std::string parameter_hash;
};

// A report as bytes, for ranks that are processes of the same program.
std::vector<std::byte> Encode(const RankReport& report);
absl::StatusOr<RankReport> DecodeRankReport(absl::Span<const std::byte> bytes);

// Called by all ranks. Rank 0 gets the reports of all, by rank; the others none.
absl::StatusOr<std::vector<RankReport>> GatherReports(RankHandle& handle, const RankReport& own);

// Cuts the reports of all ranks, by rank, to those of the last leg, which are the first `ranks`.
// The ranks that it leaves idle have nothing to report but what they traced in earlier legs, which
// the first report keeps (`idle_traces`).
void KeepLastLeg(int ranks, std::vector<RankReport>& reports);

}  // namespace lockstep
