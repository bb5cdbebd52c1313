// A pipeline's schedule, printed and drawn.
//
//   ./bazelw run //tools/schedule -- --schedule 1f1b --stages 4 --micro_batches 8
//   ./bazelw run //tools/schedule -- --csv mine.csv --transfer 0.2

#include <cstdio>

#include "core/base/flags.h"
#include "core/base/status.h"
#include "strategies/schedules/named_schedules.h"
#include "tools/experiment/paths.h"
#include "tools/schedule/request.h"
#include "tools/schedule/text.h"
#include "tools/schedule/timeline.h"

namespace lockstep {
namespace {

absl::StatusOr<int> Run() {
  LS_ASSIGN_OR_RETURN(const ScheduleRequest request, ScheduleRequestFromFlags());
  const TimedSchedule timed = {
      .schedule = request.schedule,
      .costs = request.costs,
      .transfer = request.transfer,
      .simulation = Simulate(request.schedule, request.costs, request.transfer)};
  std::printf("%s\n", ScheduleReport(timed).c_str());
  LS_RETURN_IF_ERROR(WriteOutput(request.svg, Timeline(timed)));
  std::printf("timeline %s\n", request.svg.c_str());
  if (!request.csv.empty()) {
    LS_RETURN_IF_ERROR(WriteOutput(request.csv, ScheduleToCsv(request.schedule)));
    std::printf("schedule %s\n", request.csv.c_str());
  }
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(argc, argv, lockstep::ScheduleFlags(),
                              [](const auto&) { return lockstep::Run(); });
}
