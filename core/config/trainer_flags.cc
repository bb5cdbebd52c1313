#include "core/config/trainer_flags.h"

#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "core/config/device_flag.h"
#include "core/config/legs.h"

ABSL_FLAG(lockstep::RepeatedFlag, config, {},
          "a configuration file (TOML); repeatable, later ones win");
ABSL_FLAG(lockstep::RepeatedFlag, set, {},
          "KEY=VALUE, one value over all files, e.g. --set train.steps=100; repeatable");
ABSL_FLAG(
    std::string, legs, "",
    "strategies and meshes one after another, as in \"100: ddp dp=4; 50: single\": train.legs, "
    "and the sum of their steps as train.steps");
ABSL_FLAG(std::string, out, "", "run directory; default runs/<workload>/<strategy>");
ABSL_FLAG(std::string, data, "", "folder of data sets; default: the environment's LOCKSTEP_DATA");
ABSL_FLAG(bool, resume, false, "go on from the newest checkpoint of the run directory");
ABSL_FLAG(
    bool, elastic, false,
    "ranks as threads: where one is lost, the others go on from the newest checkpoint, on the "
    "same curve (for ranks as processes //tools/launch does it)");
ABSL_FLAG(std::string, elastic_prefer, "",
          "with --elastic, what to go on with, the first that the ranks which are left are enough "
          "for: \"ddp dp=2; single\"; default: the largest mesh that divides the cut");
ABSL_FLAG(lockstep::RepeatedFlag, allow_change, {},
          "with --resume: KEY, such as train.seed or data, may differ from the run before; "
          "repeatable");
ABSL_FLAG(bool, print_config, false,
          "write the configuration as it will run, each key with its source");
ABSL_FLAG(bool, dry_run, false,
          "check all, say what the run would cost in memory, traffic and time, and end");

namespace lockstep {
namespace {

ProgramFlags TrainerFlags(const std::string& strategy) {
  return {.usage = absl::StrCat("Trains a model with the strategy '", strategy, "'."),
          .files = {__FILE__, kDeviceFlagFile}};
}

std::string FindConfig(const std::string& path) {
  const std::string users = UserPath(path);
  return !PathExists(users) && PathExists(path) ? path : users;
}

absl::StatusOr<DeviceType> ParseDevice(const std::string& name) {
  if (name == "cpu") return DeviceType::kCpu;
  if (name == "cuda") return DeviceType::kCuda;
  return InvalidArgument("--device ", name, ": there is no such device; use cpu or cuda");
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(int argc, char** argv) {
  LS_ASSIGN_OR_RETURN(const ParsedFlags parsed,
                      ParseFlags({argv + 1, argv + argc}, TrainerFlags("")));
  CommandLine line;
  for (const std::string& path : absl::GetFlag(FLAGS_config).values) {
    line.configs.push_back(FindConfig(path));
  }
  if (const std::string legs = absl::GetFlag(FLAGS_legs); !legs.empty()) {
    absl::StatusOr<std::vector<std::string>> assignments = AssignmentsOfLegs(legs);
    LS_RETURN_IF_ERROR(Annotate(assignments.status(), "--legs"));
    line.assignments = *std::move(assignments);
  }
  const std::vector<std::string> set = absl::GetFlag(FLAGS_set).values;
  line.assignments.insert(line.assignments.end(), set.begin(), set.end());
  const std::string out = absl::GetFlag(FLAGS_out);
  if (!out.empty()) line.out = UserPath(out);
  std::string data = absl::GetFlag(FLAGS_data);
  const char* usual_data = std::getenv("LOCKSTEP_DATA");
  if (data.empty() && usual_data != nullptr) data = usual_data;
  if (!data.empty()) line.data = UserPath(data);
  LS_ASSIGN_OR_RETURN(line.device, ParseDevice(absl::GetFlag(FLAGS_device)));
  line.resume = absl::GetFlag(FLAGS_resume);
  line.allowed_changes = absl::GetFlag(FLAGS_allow_change).values;
  if (!line.allowed_changes.empty() && !line.resume) {
    return InvalidArgument("--allow_change goes with --resume, which is not given");
  }
  line.elastic = absl::GetFlag(FLAGS_elastic);
  line.elastic_prefer = absl::GetFlag(FLAGS_elastic_prefer);
  if (!line.elastic_prefer.empty() && !line.elastic) {
    return InvalidArgument("--elastic_prefer goes with --elastic, which is not given");
  }
  line.print_config = absl::GetFlag(FLAGS_print_config);
  line.dry_run = absl::GetFlag(FLAGS_dry_run);
  line.help = parsed.help;
  return line;
}

std::string Usage(const std::string& strategy) { return FlagsHelp(TrainerFlags(strategy)); }

}  // namespace lockstep
