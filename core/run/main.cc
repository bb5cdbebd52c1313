#include "core/run/main.h"

#include <algorithm>  // std::max
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/base/file.h"
#include "core/base/program.h"
#include "core/base/status.h"
#include "core/checkpoint/in_memory.h"
#include "core/checkpoint/machines.h"
#include "core/comm/agree.h"
#include "core/comm/mpi/collective_queue.h"
#include "core/comm/mpi/launch.h"
#include "core/comm/mpi/process.h"
#include "core/config/trainer_flags.h"
#include "core/kernels/cpu/instruction_set.h"
#include "core/nn/model.h"
#include "core/nn/skips.h"
#include "core/report/banner.h"
#include "core/report/cost_forecast.h"
#include "core/report/error_file.h"
#include "core/report/rank_report.h"
#include "core/report/summary.h"
#include "core/run/config_listing.h"
#include "core/run/elastic.h"
#include "core/run/rehearsal.h"
#include "core/run/stop/exit_codes.h"
#include "core/run/stop/run_signals.h"
#include "core/run/stop/stop_request.h"
#include "core/run/trainer.h"
#include "core/tensor/dtype.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// How long MPI's start may take whatever run.timeout_seconds says, which is for calls: processes of
// a busy machine, or of many, do not begin together.
constexpr absl::Duration kLeastStart = absl::Seconds(30);

// What a run that was stopped behind `steps` steps goes on from.
std::string WhatIsSaved(const TrainingRun& run, int64_t steps) {
  const auto all = ListRunCheckpoints(run.out);
  const bool is_any = all.ok() && !all->empty();
  if (is_any && all->back().step == steps && !IsInMemory(all->back().path)) {
    return "its checkpoint is whole: --resume goes on";
  }
  std::string text = "no checkpoint behind that step";
  if (run.settings.checkpoint.keep == 0) {
    absl::StrAppend(&text, ", as checkpoint.keep is 0");
  } else if (run.settings.on_nan == OnNan::kContinue && steps > 0) {
    absl::StrAppend(&text, ", as weights are infinite or NaN");
  }
  if (!is_any)
    return absl::StrCat(text, ", and no earlier one: --resume has nothing to go on from");
  const char* where = IsInMemory(all->back().path) ? "the copy in memory" : "the checkpoint";
  return absl::StrCat(text, ": --resume goes on from ", where, " of step ", all->back().step);
}

// Says that a run has been stopped, and where it goes on.
void PrintStopped(const TrainingRun& run, int64_t steps) {
  std::fprintf(stderr, "stopped after step %lld of %lld; %s\n", static_cast<long long>(steps),
               static_cast<long long>(run.settings.steps), WhatIsSaved(run, steps).c_str());
}

// Writes the summary of a run that has ended. Returns the exit code.
absl::StatusOr<int> ReportThreads(const TrainingRun& run, std::vector<RankReport> reports,
                                  const TimePredictor& predict_time) {
  const int64_t steps = reports[0].steps_behind;
  if (steps < run.settings.steps && !reports[0].ended_early) {
    PrintStopped(run, steps);
    return kStoppedExitCode;
  }
  const TrainingRun& last = LastLeg(run);
  PredictMemory(last, {.profiles = reports[0].profiles}, reports);
  LS_RETURN_IF_ERROR(
      WriteRunSummary(last, reports, predict_time({.run = last, .profiles = reports[0].profiles})));
  RemoveInMemoryFolder(run.out);  // nobody goes on from a complete run's
  return 0;
}

absl::StatusOr<int> TrainThreads(const CommandLine& command_line,
                                 const StrategyDefinition& strategy, const ModelFactory& make_model,
                                 const TimePredictor& predict_time,
                                 const std::vector<StrategyDefinition>& strategies) {
  const auto stop = std::make_shared<StopRequest>();
  const RunSignals signals(stop, kSignalsOfThreads);
  absl::StatusOr<TrainingRun> run =
      PrepareRun(command_line, strategy, make_model, /*here=*/{}, strategies);
  if (run.ok()) {
    run->stop = stop;
    run->speaks = true;
  }
  const auto train = [&]() -> absl::StatusOr<int> {
    LS_RETURN_IF_ERROR(run.status());
    if (!command_line.elastic) {
      LS_ASSIGN_OR_RETURN(std::vector<RankReport> reports, TrainRanks(*run));
      return ReportThreads(*run, std::move(reports), predict_time);
    }
    LS_ASSIGN_OR_RETURN(EndedRun ended, TrainElastic(*run, {.command_line = command_line,
                                                            .strategy = strategy,
                                                            .make_model = make_model,
                                                            .strategies = strategies}));
    return ReportThreads(*ended.run, std::move(ended.reports), predict_time);
  };
  absl::StatusOr<int> code = train();
  if (code.ok()) return code;
  const absl::Status error = run.ok() ? run->directory->Explain(code.status()) : code.status();
  LeaveError(command_line, run, error);
  return error;
}

absl::StatusOr<TrainingRun> PrepareLaunched(const mpi::Process& process,
                                            const CommandLine& command_line,
                                            const StrategyDefinition& strategy,
                                            const ModelFactory& make_model,
                                            const std::vector<StrategyDefinition>& strategies) {
  LS_ASSIGN_OR_RETURN(TrainingRun run, PrepareRun(command_line, strategy, make_model,
                                                  {.processes = process.ranks_here(),
                                                   .has_first = process.rank() == 0},
                                                  strategies));
  if (command_line.elastic) {
    return absl::InvalidArgumentError(
        "--elastic is for ranks that are threads; start processes by //tools/launch, which starts "
        "them again when one dies");
  }
  if (run.next != nullptr && WorldSize(run) != process.size()) {
    return InvalidArgument("the largest mesh of train.legs has ", WorldSize(run),
                           " ranks, but the launcher has started ", process.size(),
                           " processes: start as many, or change train.legs");
  }
  if (run.next == nullptr && run.settings.mesh.ranks() != process.size()) {
    return InvalidArgument(
        "the mesh ", run.settings.mesh.ToString(), " has ", run.settings.mesh.ranks(),
        " ranks, but the launcher has started ", process.size(),
        " processes: start as many, or change [mesh], for instance by --set mesh.dp=",
        process.size());
  }
  LS_RETURN_IF_ERROR(CheckFits(run));
  LS_ASSIGN_OR_RETURN(run.keys["program"], ProgramChecksum());
  run.speaks = process.rank() == 0;
  for (const TrainingRun* leg = &run; leg != nullptr && process.rank() == 0;
       leg = leg->next.get()) {
    LS_RETURN_IF_ERROR(CheckKernels(*leg));
  }
  return run;
}

// What a run without legs, or one leg of a run, would cost, and where and how it would go.
absl::StatusOr<std::string> Forecast(const TrainingRun& run, const TimePredictor& predict_time) {
  LS_RETURN_IF_ERROR(CheckKernels(run));
  LS_ASSIGN_OR_RETURN(const std::vector<Rehearsed> ranks, Rehearse(run));
  CostForecast forecast;
  forecast.time = predict_time({.run = run, .profiles = {}});
  for (const Rehearsed& rank : ranks) {
    forecast.costs.push_back(rank.prediction);
    forecast.memory.push_back(rank.memory);
  }
  LS_ASSIGN_OR_RETURN(const Model model, run.make_model(run.config, *run.dataset));
  for (const SkipPath& path : SkipPaths(model.blocks)) {
    forecast.skips.push_back({.name = path.name.ToString(),
                              .from = model.blocks[path.from]->name(),
                              .to = model.blocks[path.to]->name(),
                              .bytes = path.elements * SizeOf(run.settings.precision.compute)});
  }
  return absl::StrCat(Banner(run, /*first_step=*/0, /*from=*/"", /*changes=*/{}), "\n",
                      CostForecastText(run, forecast));
}

// The forecast of the command line's run: of each of its legs, if it has any.
absl::StatusOr<std::string> DryRun(const CommandLine& command_line,
                                   const StrategyDefinition& strategy,
                                   const ModelFactory& make_model,
                                   const TimePredictor& predict_time,
                                   const std::vector<StrategyDefinition>& strategies) {
  LS_ASSIGN_OR_RETURN(const TrainingRun run,
                      CheckWholeRun(command_line, strategy, make_model, {}, strategies));
  LS_RETURN_IF_ERROR(CheckThreads(run));
  LS_RETURN_IF_ERROR(CheckFits(run));
  if (run.settings.legs.empty()) return Forecast(run, predict_time);
  std::string text;
  int64_t first_step = 1;
  size_t number = 1;
  for (const TrainingRun* leg = &run; leg != nullptr; leg = leg->next.get()) {
    const std::string where = absl::StrCat("train.legs, leg ", number++);
    const absl::StatusOr<std::string> forecast = Forecast(*leg, predict_time);
    LS_RETURN_IF_ERROR(Annotate(forecast.status(), where));
    absl::StrAppend(&text, text.empty() ? "" : "\n", where, ", steps ", first_step, " to ",
                    leg->end_step, "\n", *forecast);
    first_step = leg->end_step + 1;
  }
  return text;
}

// Trains as one of the processes that mpirun or srun has started, each a rank. Rank 0 writes the
// run directory, which the others need to see only for checkpoints. Where the run fails, one of the
// ranks writes the cause to the standard error, and the others say nothing. Returns the exit code.
absl::StatusOr<int> TrainLaunched(const CommandLine& command_line,
                                  const StrategyDefinition& strategy,
                                  const ModelFactory& make_model, const TimePredictor& predict_time,
                                  const std::vector<StrategyDefinition>& strategies) {
  const auto stop = std::make_shared<StopRequest>();
  RunSignals signals(stop, kSignalsOfProcesses);
  const absl::Duration timeout = absl::Seconds(TimeoutOf(command_line));
  LS_ASSIGN_OR_RETURN(const auto process,
                      mpi::Process::Start({.start = std::max(kLeastStart, timeout),
                                           .stop = timeout,
                                           .lost_exit_code = kRankLostExitCode}));
  signals.SetNotice(process->rank() == 0 ? RunSignals::Notice::kWithoutStep
                                         : RunSignals::Notice::kNone);
  absl::StatusOr<TrainingRun> run =
      PrepareLaunched(*process, command_line, strategy, make_model, strategies);
  if (run.ok()) run->stop = stop;
  int code = 0;
  LaunchOptions options;
  if (run.ok()) options = LaunchOptionsOf(*run);
  const auto train_and_report = [&](RankHandle& handle) -> absl::Status {
    LS_RETURN_IF_ERROR(CheckSameOnAllRanks(run->keys, handle.comm()));
    LS_ASSIGN_OR_RETURN(run->machines, FindMachines(handle.comm()));
    RankReport own;
    LS_RETURN_IF_ERROR(TrainRank(*run, handle, own));
    if (own.steps_behind < run->settings.steps && !own.ended_early) {
      code = kStoppedExitCode;
      if (handle.rank() == 0) PrintStopped(*run, own.steps_behind);
      return absl::OkStatus();
    }
    LS_ASSIGN_OR_RETURN(std::vector<RankReport> reports, GatherReports(handle, own));
    if (handle.rank() != 0) return absl::OkStatus();
    const TrainingRun& last = LastLeg(*run);
    KeepLastLeg(last.settings.mesh.ranks(), reports);
    PredictMemory(last, {.profiles = own.profiles, .held_bytes = &mpi::HeldBytes}, reports);
    return WriteRunSummary(
        last, reports,
        predict_time({.run = last,
                      .profiles = own.profiles,
                      .are_processes = true,
                      .on_one_machine = process->ranks_here() == process->size()}));
  };
  const auto train = [&](RankHandle& handle) -> absl::Status {
    LS_RETURN_IF_ERROR(AgreeOnFirst(run.status(), handle.comm()));
    return run->directory->Explain(train_and_report(handle));
  };
  const auto say = [&](const mpi::Outcome& outcome) {
    if (!outcome.is_told_here) return;
    // Where no rank has reported the cause, this one knows what followed from it, at most.
    const bool is_left = run.ok() && PathExists(absl::StrCat(run->out, "/", kErrorFile));
    if (outcome.reported_by >= 0 || !is_left) LeaveError(command_line, run, outcome.status);
    PrintError(outcome.status);
  };
  const mpi::Outcome outcome = mpi::RunRank(*process, process->size(), options, train, say);
  if (outcome.status.ok()) {
    // Rank 0 has written the summary.
    if (code == 0 && run->machines.IsFirst(process->rank())) RemoveInMemoryFolder(run->out);
    return code;
  }
  process->Abandon();
  // Where no rank has said why, one of them is gone.
  return outcome.reported_by < 0 ? kRankLostExitCode : ExitCodeOfFailure(outcome.status);
}

absl::StatusOr<int> RunMain(int argc, char** argv, const StrategyDefinition& strategy,
                            const ModelFactory& make_model, const TimePredictor& predict_time,
                            const std::vector<StrategyDefinition>& strategies) {
  LS_ASSIGN_OR_RETURN(const CommandLine command_line, ParseCommandLine(argc, argv));
  std::string answer;
  if (command_line.help) {
    answer = absl::StrCat(Usage(strategy.name), "\n", ConfigHelp(strategy, make_model));
  } else if (command_line.print_config) {
    LS_ASSIGN_OR_RETURN(answer, EffectiveConfig(command_line, strategy, make_model, strategies));
  } else if (command_line.dry_run) {
    LS_ASSIGN_OR_RETURN(answer,
                        DryRun(command_line, strategy, make_model, predict_time, strategies));
  }
  if (!answer.empty()) {
    std::fputs(answer.c_str(), stdout);
    return 0;
  }
  if (!HasAvx2AndFma()) {
    return absl::UnavailableError(
        "this program needs a processor with AVX2 and FMA: Intel Haswell, AMD Zen or later");
  }
  LS_ASSIGN_OR_RETURN(const bool is_launched, mpi::Process::IsLaunched());
  if (is_launched) {
    return TrainLaunched(command_line, strategy, make_model, predict_time, strategies);
  }
  return TrainThreads(command_line, strategy, make_model, predict_time, strategies);
}

}  // namespace

int TrainMain(int argc, char** argv, const StrategyDefinition& strategy,
              const ModelFactory& make_model, const TimePredictor& predict_time,
              const std::vector<StrategyDefinition>& strategies) {
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  return ExitCodeOf(
      [&] { return RunMain(argc, argv, strategy, make_model, predict_time, strategies); });
}

}  // namespace lockstep
