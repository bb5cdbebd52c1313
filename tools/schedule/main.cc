// A pipeline's schedule, printed and drawn.
//
//   ./bazelw run //tools/schedule -- --schedule 1f1b --stages 4 --micro_batches 8
//   ./bazelw run //tools/schedule -- --csv mine.csv --transfer 0.2

#include <cstdio>
#include <filesystem>
#include <string>

#include "core/base/file.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "strategies/schedules/named_schedules.h"
#include "tools/schedule/request.h"
#include "tools/schedule/text.h"
#include "tools/schedule/timeline.h"

namespace lockstep {
namespace {

absl::Status WriteOut(const std::string& what, const std::string& path,
                      const std::string& contents) {
  LS_RETURN_IF_ERROR(MakeDirectories(std::filesystem::path(path).parent_path().string()));
  LS_RETURN_IF_ERROR(WriteFileAtomically(path, contents));
  std::printf("%s %s\n", what.c_str(), path.c_str());
  return absl::OkStatus();
}

absl::StatusOr<int> Run() {
  LS_ASSIGN_OR_RETURN(const ScheduleRequest request, ScheduleRequestFromFlags());
  const TimedSchedule timed = {
      .schedule = request.schedule,
      .costs = request.costs,
      .transfer = request.transfer,
      .simulation = Simulate(request.schedule, request.costs, request.transfer)};
  std::printf("%s\n", ScheduleReport(timed).c_str());
  LS_RETURN_IF_ERROR(WriteOut("timeline", request.svg, Timeline(timed)));
  if (!request.csv.empty()) {
    LS_RETURN_IF_ERROR(WriteOut("schedule", request.csv, ScheduleToCsv(request.schedule)));
  }
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(argc, argv, lockstep::ScheduleFlags(),
                              [](const auto&) { return lockstep::Run(); });
}
