#include "tools/bench/foresight/planning_speed.h"

#include <sys/resource.h>  // getrusage

#include <cstdint>
#include <vector>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/base/subprocess.h"

namespace lockstep {
namespace {

struct Plan {
  const char* name;
  std::vector<std::string> arguments;
  double goal_seconds;
};

}  // namespace

absl::StatusOr<Table> PlanningSpeed(const std::string& plan) {
  constexpr int64_t kGoalBytes = int64_t{4} << 30;
  const std::vector<Plan> plans = {
      {"gpt3_175b, one mesh of 16,384 devices", {"--mesh", "pp=16,dp=128,tp=8"}, 10},
      {"gpt3_175b, all meshes of 1,024 devices", {"--ranks", "1024"}, 60},
  };
  Table table = {
      .title = "how long plans take",
      .columns = {{"plan", Table::Align::kLeft}, {"time"}, {"goal"}, {"memory"}, {"goal"}}};
  for (const Plan& one : plans) {
    std::vector<std::string> arguments = {plan, "--workload", "gpt3_175b", "--cluster", "h100"};
    arguments.insert(arguments.end(), one.arguments.begin(), one.arguments.end());
    const int64_t begin = NowNanos();
    LS_ASSIGN_OR_RETURN(
        const ProcessResult result,
        RunProcess({.arguments = arguments, .err = ProcessOptions::Stream::kInherit}));
    const double seconds = SecondsSince(begin);
    if (!result.ok()) return absl::InternalError(plan + ": " + result.Describe());
    // The largest of all programs that have ended, in KiB.
    rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    table.Add({one.name, FormatDuration(seconds), FormatDuration(one.goal_seconds),
               FormatBytes(usage.ru_maxrss * 1024), FormatBytes(kGoalBytes)});
  }
  return table;
}

}  // namespace lockstep
