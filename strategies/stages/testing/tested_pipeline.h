#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/comm/launch.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/run/strategy/batch_statistics.h"
#include "core/run/strategy/local_model.h"
#include "strategies/stages/schedule_runner.h"

namespace lockstep {

// Training without a trainer: gradients of the steps of one schedule.
struct PipelineUnderTest {
  std::function<Model()> make_model;
  Schedule schedule;
  std::vector<int64_t> balance = {};  // blocks of each stage; empty: one
  Checkpointing checkpointing = Checkpointing::kNever;
  bool deferred_batch_norm = true;  // as in Settings
  int64_t samples = 0;              // of a step; 0: two a micro-batch
  int64_t steps = 1;
  // The next micro-batch, of so many samples; by default vectors of 8 features in 8 classes, others
  // for each sample of a step.
  std::function<Batch(Kernels&, int64_t first_sample, int64_t samples)> make_batch = nullptr;
};

// One rank of it.
class RankUnderTest {
 public:
  RankUnderTest(RankHandle& handle, const PipelineUnderTest& pipeline);

  // Runs a step, from fresh gradients to complete ones.
  void Step(int64_t step);
  // After a step: moves the running estimates.
  void UpdateStatistics();

  LocalModel& local_model() { return *local_model_; }
  ScheduleRunner& runner() { return *runner_; }
  Kernels& kernels() { return kernels_; }
  const Ledger& ledger() const { return handle_.ledger(); }
  const Trace& trace() const { return trace_; }
  int index() const { return handle_.rank(); }
  Batch MakeBatch(int64_t first_sample, int64_t samples);

 private:
  RankHandle& handle_;
  const PipelineUnderTest& pipeline_;
  const StagePlan plan_;
  const Settings settings_;
  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
  Mesh mesh_;
  Trace trace_;
  StepTimer timer_;
  Rank rank_;
  std::unique_ptr<LocalModel> local_model_;
  std::unique_ptr<BatchStatistics> statistics_;
  std::unique_ptr<StageLinks> links_;
  std::unique_ptr<ScheduleRunner> runner_;
};

// What all ranks together have computed in the last step.
struct StepOutcome {
  double loss = 0;
  std::map<std::string, std::vector<float>> gradients = {};  // by parameter

  friend bool operator==(const StepOutcome&, const StepOutcome&) = default;
};

// Runs all steps on all ranks, `look` after the last. What they throw, the first of them, is the
// error.
absl::StatusOr<StepOutcome> RunPipeline(
    const PipelineUnderTest& pipeline,
    const std::function<void(RankUnderTest&)>& look = [](RankUnderTest&) {});

// The same steps on one rank with one stage, which keeps all activations: what it must come to.
StepOutcome WithoutPipeline(PipelineUnderTest pipeline);

}  // namespace lockstep
