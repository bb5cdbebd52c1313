#include "core/run/launched.h"

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/base/status.h"
#include "core/comm/agree.h"
#include "core/comm/mpi/collective_queue.h"
#include "core/comm/mpi/launch.h"
#include "core/comm/mpi/process.h"
#include "core/report/rank_report.h"
#include "core/report/summary.h"
#include "core/run/rehearsal.h"
#include "core/run/trainer.h"

namespace lockstep {
namespace {

absl::StatusOr<TrainingRun> Prepare(const mpi::Process& process, const CommandLine& command_line,
                                    const StrategyDefinition& strategy,
                                    const ModelFactory& make_model) {
  LS_ASSIGN_OR_RETURN(TrainingRun run, PrepareRun(command_line, strategy, make_model,
                                                  {.has_first_rank = process.rank() == 0,
                                                   .processes = process.ranks_here(),
                                                   .own_number = process.number_here()}));
  if (run.settings.mesh.ranks() != process.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the mesh ", run.settings.mesh.ToString(), " has ", run.settings.mesh.ranks(),
                     " ranks, but the launcher has started ", process.size(),
                     " processes: start as many, or change [mesh], for instance by --set mesh.dp=",
                     process.size()));
  }
  if (process.rank() == 0) LS_RETURN_IF_ERROR(CheckKernels(run));
  return run;
}

}  // namespace

int TrainLaunched(const CommandLine& command_line, const StrategyDefinition& strategy,
                  const ModelFactory& make_model) {
  const auto process = mpi::Process::Start();
  if (!process.ok()) {
    PrintError(process.status());
    return 1;
  }
  const int self = (*process)->rank();
  const absl::StatusOr<TrainingRun> run = Prepare(**process, command_line, strategy, make_model);
  LaunchOptions options;
  if (run.ok()) {
    options.timeout = absl::Seconds(run->settings.timeout_seconds);
    options.post_mortem = PostMortemFolder(*run);
  }
  const auto train = [&](RankHandle& handle) -> absl::Status {
    LS_RETURN_IF_ERROR(AgreeOnFirst(run.status(), handle.comm()));
    RankReport own;
    LS_RETURN_IF_ERROR(TrainRank(*run, handle, own));
    LS_ASSIGN_OR_RETURN(std::vector<RankReport> reports, GatherReports(handle, own));
    if (handle.rank() != 0) return absl::OkStatus();
    PredictMemory(*run, {.profiles = own.profiles, .held_bytes = &mpi::HeldBytes}, reports);
    return WriteRunSummary(Describe(*run), reports);
  };
  const auto say = [&](const mpi::Outcome& outcome) {
    if (outcome.reported_by < 0 || outcome.reported_by == self) {
      LeaveError(command_line, run, outcome.status);
      return PrintError(outcome.status);
    }
    PrintError(absl::CancelledError(
        absl::StrCat("rank ", self, ": ended because rank ", outcome.reported_by, " has failed")));
  };
  if (mpi::RunRank(**process, (*process)->size(), options, train, say).status.ok()) return 0;
  (*process)->Abandon();
  return 1;
}

}  // namespace lockstep
