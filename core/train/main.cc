#include "core/train/main.h"

#include <cstdio>
#include <string>

#include "core/base/status.h"
#include "core/train/command_line.h"
#include "core/train/trainer.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

absl::Status RunMain(int argc, char** argv, const StrategyDefinition& strategy,
                     const ModelFactory& make_model) {
  LS_ASSIGN_OR_RETURN(const CommandLine command_line, ParseCommandLine(argc, argv));
  if (command_line.help) {
    std::fputs(Usage(strategy.name).c_str(), stdout);
    return absl::OkStatus();
  }
  LS_ASSIGN_OR_RETURN(const Run run, PrepareRun(command_line, strategy, make_model));
  return Train(run);
}

}  // namespace

int TrainMain(int argc, char** argv, const StrategyDefinition& strategy,
              const ModelFactory& make_model) {
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  const absl::Status status = RunMain(argc, argv, strategy, make_model);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace lockstep
