#include "core/run/main.h"

#include <cstdio>
#include <string>

#include "core/base/status.h"
#include "core/comm/mpi/process.h"
#include "core/config/trainer_flags.h"
#include "core/kernels/cpu/instruction_set.h"
#include "core/run/config_listing.h"
#include "core/run/launched.h"
#include "core/run/trainer.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

absl::Status RunThreads(const CommandLine& command_line, const StrategyDefinition& strategy,
                        const ModelFactory& make_model) {
  const absl::StatusOr<TrainingRun> run = PrepareRun(command_line, strategy, make_model);
  const absl::Status status = run.ok() ? Train(*run) : run.status();
  if (!status.ok()) LeaveError(command_line, run, status);
  return status;
}

}  // namespace

int TrainMain(int argc, char** argv, const StrategyDefinition& strategy,
              const ModelFactory& make_model) {
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  const absl::StatusOr<CommandLine> command_line = ParseCommandLine(argc, argv);
  if (!command_line.ok()) {
    PrintError(command_line.status());
    return 1;
  }
  if (command_line->help) {
    std::fputs(Usage(strategy.name).c_str(), stdout);
    std::fputs(("\n" + ConfigHelp(strategy, make_model)).c_str(), stdout);
    return 0;
  }
  if (command_line->print_config) {
    const auto config = EffectiveConfig(*command_line, strategy, make_model);
    if (config.ok()) std::fputs(config->c_str(), stdout);
    if (!config.ok()) PrintError(config.status());
    return config.ok() ? 0 : 1;
  }
  if (!HasAvx2AndFma()) {
    PrintError(absl::UnavailableError(
        "this program needs a processor with AVX2 and FMA: Intel Haswell, AMD Zen or later"));
    return 1;
  }
  const absl::StatusOr<bool> launched = mpi::Process::IsLaunched();
  if (!launched.ok()) {
    PrintError(launched.status());
    return 1;
  }
  if (*launched) return TrainLaunched(*command_line, strategy, make_model);
  const absl::Status status = RunThreads(*command_line, strategy, make_model);
  if (status.ok()) return 0;
  PrintError(status);
  return 1;
}

}  // namespace lockstep
