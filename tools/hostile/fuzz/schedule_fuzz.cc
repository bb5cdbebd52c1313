#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "glog/logging.h"
#include "strategies/schedules/named_schedules.h"
#include "strategies/schedules/schedule.h"
#include "strategies/schedules/simulation.h"
#include "tools/hostile/fuzz/fuzz_targets.h"

namespace lockstep {

absl::Status FuzzSchedule(std::string_view input) {
  LS_ASSIGN_OR_RETURN(const Schedule schedule, ScheduleFromCsv(std::string(input), "input"));
  LS_RETURN_IF_ERROR(Validate(schedule));
  const auto again = ScheduleFromCsv(ScheduleToCsv(schedule), "written");
  CHECK(again.ok()) << again.status();
  CHECK(again->ranks == schedule.ranks);
  const std::vector<StageCosts> costs(static_cast<size_t>(schedule.stages()));
  CHECK(std::isfinite(Simulate(schedule, costs, /*transfer=*/0.5).total));
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    CHECK_LE(PeakActivations(schedule, static_cast<int>(rank)),
             schedule.micro_batches * schedule.stages());
  }
  return absl::OkStatus();
}

}  // namespace lockstep
