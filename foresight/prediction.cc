#include "foresight/prediction.h"

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/status.h"
#include "core/kernels/cpu/instruction_set.h"
#include "foresight/cluster.h"
#include "foresight/dialect.h"
#include "foresight/machine_file.h"
#include "foresight/measured_time.h"
#include "foresight/recorded_run.h"
#include "foresight/step_time.h"

namespace lockstep {
namespace {

absl::StatusOr<TimePrediction> Predict(const FinishedRun& finished) {
  const TrainingRun& run = finished.run;
  LS_ASSIGN_OR_RETURN(const std::string file, MachineFile());
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) {
    return absl::NotFoundError(
        "this machine was not measured yet; ./bazelw run //tools/plan:calibrate does so in 90 s");
  }
  if (run.device != DeviceType::kCpu) {
    return absl::UnimplementedError("measurements of a machine are those of its CPU");
  }
  if (!finished.on_one_machine) {
    return absl::UnimplementedError("the ranks are on several machines, of which one was measured");
  }
  if (run.settings.instructions != WidestInstructionSet()) {
    return absl::UnimplementedError(
        "run.instructions is not what the machine was measured with, its widest");
  }
  absl::StatusOr<Cluster> read = ReadCluster(file);
  LS_RETURN_IF_ERROR(Annotate(read.status(), file));
  const Cluster machine = *std::move(read);
  if (machine.measured.empty()) {
    return InvalidArgument(file, ": has no [measured] kernels; run //tools/plan:calibrate again");
  }
  LS_ASSIGN_OR_RETURN(const Dialect dialect, Dialect::Lockstep());
  LS_ASSIGN_OR_RETURN(RecordedRun recorded, RecordRun(run, {.profiles = finished.profiles}));
  LS_ASSIGN_OR_RETURN(
      const StepTime step,
      StepTime::Create(std::make_shared<const RecordedRun>(std::move(recorded)), dialect, machine));
  const MeasuredCommTime communication(
      machine.measured, finished.are_processes ? Transport::kMpi : Transport::kThreads);
  LS_ASSIGN_OR_RETURN(const StepEstimate estimate, step.Estimate(dialect, machine, communication));
  const RankEstimate& first = estimate.ranks[0];
  TimePrediction prediction;
  prediction.step = estimate.seconds;
  prediction.compute = first.compute;
  prediction.optimizer = first.optimizer;
  prediction.bubble = first.bubble;
  for (const auto& [label, seconds] : first.exposed) prediction.exposed += seconds;
  return prediction;
}

}  // namespace

TimePrediction PredictStepTime(const FinishedRun& finished) {
  absl::Status status;
  try {
    absl::StatusOr<TimePrediction> prediction = Predict(finished);
    if (prediction.ok()) return *std::move(prediction);
    status = prediction.status();
  } catch (const StatusException& error) {
    status = error.status();
  }
  TimePrediction none;
  const std::pair<std::string, std::string> lines =
      absl::StrSplit(status.message(), absl::MaxSplits('\n', 1));
  none.missing = lines.first;
  return none;
}

}  // namespace lockstep
