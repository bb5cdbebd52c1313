#include "tools/curve/reordered_runs.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/run/leg/training_run.h"
#include "core/run/stop/run_signals.h"
#include "core/run/stop/stop_request.h"
#include "core/run/trainer.h"
#include "models/models.h"

namespace lockstep {
namespace {

CommandLine CommandLineOf(const ReorderedRunsOptions& options) {
  CommandLine line = options.workload;
  // The same bits as with several threads, and faster for models that make a band quickly.
  line.assignments.insert(line.assignments.begin(), "run.threads=1");
  line.assignments.push_back(absl::StrCat("train.steps=", options.steps));
  for (const char* assignment :
       {"validation.every=0", "validation.batches=1", "validation.at_start=false",
        "checkpoint.every=0", "checkpoint.keep=0", "trace.steps=0"}) {
    line.assignments.emplace_back(assignment);
  }
  return line;
}

// Trains to the end of a run. Cancelled when it was stopped before.
absl::Status Train(const CommandLine& line, const StrategyDefinition& strategy,
                   const Reordering& reordering) {
  const auto stop = std::make_shared<StopRequest>();
  const RunSignals signals(stop, kSignalsOfThreads);
  LS_ASSIGN_OR_RETURN(TrainingRun run, PrepareRun(line, strategy, MakeModel));
  run.stop = stop;
  if (reordering.sample_order) {
    LS_RETURN_IF_ERROR(ReplaceDataset(run, ReorderSamples(run.dataset, *reordering.sample_order)));
  }
  LS_RETURN_IF_ERROR(TrainRanks(run).status());
  return stop->stopped_after() ? absl::CancelledError("interrupted") : absl::OkStatus();
}

}  // namespace

absl::StatusOr<TrainingRun> CheckReorderedRun(const ReorderedRunsOptions& options,
                                              const StrategyDefinition& strategy) {
  return CheckRun(CommandLineOf(options), strategy, MakeModel);
}

absl::StatusOr<std::vector<LossPoint>> TrainReordered(const ReorderedRunsOptions& options,
                                                      const StrategyDefinition& strategy,
                                                      const Reordering& reordering) {
  CommandLine line = CommandLineOf(options);
  line.assignments.insert(line.assignments.end(), reordering.assignments.begin(),
                          reordering.assignments.end());
  line.out = options.workload.out + "/run";
  RemoveTree(line.out);
  if (options.resumed_at > 0) {
    CommandLine first = line;
    first.assignments.push_back(absl::StrCat("train.steps=", options.resumed_at));
    first.assignments.emplace_back("checkpoint.keep=1");
    LS_RETURN_IF_ERROR(Train(first, strategy, reordering));
    line.resume = true;
  }
  LS_RETURN_IF_ERROR(Train(line, strategy, reordering));
  absl::StatusOr<std::vector<LossPoint>> losses = ReadLossCurve(line.out + "/losses.csv");
  RemoveTree(line.out);
  return losses;
}

absl::StatusOr<std::vector<std::vector<LossPoint>>> TrainAllReordered(
    const ReorderedRunsOptions& options, const StrategyDefinition& strategy) {
  LS_ASSIGN_OR_RETURN(const TrainingRun run, CheckReorderedRun(options, strategy));
  LS_ASSIGN_OR_RETURN(const Reorderings reorderings, Reorderings::Of(run));
  if (reorderings.count() < 2 && !reorderings.reorders_samples()) {
    return InvalidArgument("the workload ", run.workload, " admits no reordering of its sums");
  }
  std::vector<std::vector<LossPoint>> curves;
  const int64_t begin = NowNanos();
  for (int64_t number = 0; number < options.runs; ++number) {
    const Reordering reordering = reorderings.Draw(options.seed, static_cast<uint64_t>(number));
    absl::StatusOr<std::vector<LossPoint>> losses = TrainReordered(options, strategy, reordering);
    if (absl::IsCancelled(losses.status())) return losses.status();
    if (!losses.ok()) return Annotate(losses.status(), reordering.ToString());
    curves.push_back(*std::move(losses));
    const double of_run = SecondsSince(begin) / static_cast<double>(number + 1);
    options.ended(
        number,
        absl::StrCat("[", number + 1, "/", options.runs, "] ", reordering.ToString(), ", about ",
                     FormatDuration(of_run * static_cast<double>(options.runs - number - 1)),
                     " left"));
  }
  return curves;
}

}  // namespace lockstep
