#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "core/run/strategy/local_model.h"
#include "core/run/strategy/stage_pass.h"
#include "core/run/strategy/strategy.h"
#include "strategies/recompute/checkpointing.h"
#include "strategies/schedules/schedule.h"
#include "strategies/stages/stage_links.h"
#include "strategies/stages/stage_plan.h"

namespace lockstep {

// What a strategy does beside the passes of its stages.
struct StageHooks {
  // When the forward of a micro-batch, by its index in the global batch, through a stage is done.
  std::function<void(int stage, int64_t micro_batch)> forwarded = [](int, int64_t) {};
  // For the backward that completes the gradients of a stage's blocks for a shard of the batch,
  // `shard` in the order in which they run.
  std::function<BackwardHooks(int stage, int64_t shard)> completing = [](int, int64_t) {
    return BackwardHooks();
  };
  // When all of the shard's backwards of a stage are done.
  std::function<void(int stage, int64_t shard)> completed = [](int, int64_t) {};
};

// The stages that need batches: the two that read inputs or targets, or all, as where samples are
// packed from documents.
enum class BatchUse { kAtEnds, kInAllStages };

// Does what a schedule says, on one rank: the one runtime of all schedules. Transfers follow from
// the actions: what the next action needs is received while this one computes.
class ScheduleRunner {
 public:
  // Requires Validate(schedule), whose stages are those of `plan`. All but `checkpointing` outlive
  // the runner; `rank` is this one's in the plan.
  ScheduleRunner(LocalModel& local_model, const StagePlan& plan, const Schedule& schedule, int rank,
                 Checkpointing checkpointing, BatchUse batch_use, StageLinks& links);

  // Whether this rank needs anything of batches.
  bool takes_batches() const { return UsesOfBatch() > 0; }

  // Runs as many micro-batches as the schedule has, whose indices in the global batch are
  // `micro_batches`, `of_shard` for each shard of the batch; and waits until what was sent has been
  // taken. Throws StatusException.
  void Run(int64_t step, absl::Span<const int64_t> micro_batches, int64_t of_shard,
           BatchSource& batches, const StageHooks& hooks);

  // One batch through the stages, without gradients. Returns what the last stage knows of it, on
  // that stage's rank.
  EvaluationSums Evaluate(const Batch& batch);

  // The most micro-batches that were on their way on this rank at one time, over all its stages.
  int peak_in_flight() const { return peak_in_flight_; }

 private:
  using Place = std::pair<int, int>;  // stage, micro-batch

  struct Fetched {
    Batch batch;
    int uses;  // that are still to come
  };

  void Enter(StepPlace::Kind kind, const Action& action);
  void Expect(size_t action);
  void Forward(const Action& action);
  void Backward(const Action& action);
  void End(const Action& action);
  // This rank's next use of a micro-batch.
  Batch TakeBatch(int micro_batch);
  bool TakesBatch(int stage) const {
    return batch_use_ == BatchUse::kInAllStages || IsFirst(stage) || IsLast(stage);
  }
  // How many of this rank's stages take a micro-batch's batch.
  int UsesOfBatch() const;
  BatchKind KindOf(int micro_batch) const;
  int64_t ShardOf(int micro_batch) const { return micro_batch / of_shard_; }
  bool EndsShard(int micro_batch) const { return (micro_batch + 1) % of_shard_ == 0; }
  bool IsFirst(int stage) const { return stage == 0; }
  bool IsLast(int stage) const { return stage + 1 == plan_.size(); }

  LocalModel& local_model_;
  const StagePlan& plan_;
  const Schedule& schedule_;
  const std::vector<Action>& actions_;  // of this rank
  const Checkpointing checkpointing_;
  const BatchUse batch_use_;
  StageLinks& links_;

  // What the present run was given.
  int64_t step_ = 0, of_shard_ = 1;
  absl::Span<const int64_t> micro_batches_;  // by number in the schedule
  BatchSource* batches_ = nullptr;
  const StageHooks* hooks_ = nullptr;
  size_t expected_ = 0;          // actions whose inputs are under way
  int fetched_ = 0;              // micro-batches
  std::map<int, Fetched> kept_;  // by micro-batch: those that are needed once more
  std::map<Place, StagePass> passes_;
  int peak_in_flight_ = 0;
};

}  // namespace lockstep
