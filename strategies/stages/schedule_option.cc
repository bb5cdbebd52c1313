#include "strategies/stages/schedule_option.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "core/config/key_ranges.h"
#include "strategies/schedules/named_schedules.h"

namespace lockstep {
namespace {

// Stages of a pipeline, and passes of a step through all of them: what is checked in a second. The
// check takes the square of the stages.
constexpr int64_t kMostStages = 4096, kMostActions = int64_t{1} << 20;

absl::StatusOr<Schedule> ReadFile(const std::string& path, int ranks) {
  LS_ASSIGN_OR_RETURN(const std::string csv, lockstep::ReadFile(path));
  LS_ASSIGN_OR_RETURN(Schedule schedule, ScheduleFromCsv(csv, path));
  if (static_cast<int>(schedule.ranks.size()) == ranks) return schedule;
  return InvalidArgument(path, " has ", schedule.ranks.size(), " rows, one a rank, but mesh.pp is ",
                         ranks);
}

}  // namespace

Schedule ReadSchedule(ConfigReader& reader, const Settings& settings, Divided divided) {
  std::string name = "1f1b", file;
  reader.Read("schedule", &name);
  reader.Read("schedule_file", &file);
  int stages_per_rank = DefaultStagesPerRank(name);
  reader.Read("stages_per_rank", &stages_per_rank, {.at_least = 1, .at_most = kMostLayers});
  const int ranks = settings.mesh.pp;
  const bool is_file = !file.empty();
  if (is_file && (reader.IsGiven("schedule") || reader.IsGiven("stages_per_rank"))) {
    reader.AddProblem("schedule_file", "says all; leave schedule and stages_per_rank out");
  }
  const auto make = [&](int64_t micro_batches) -> absl::StatusOr<Schedule> {
    const int64_t stages = int64_t{ranks} * stages_per_rank;
    if (stages > kMostStages) {
      return InvalidArgument("it has ", stages, " stages, more than ", kMostStages,
                             "; lower mesh.pp or stages_per_rank");
    }
    if (stages * micro_batches > kMostActions) {
      return InvalidArgument("it takes each of ", stages, " stages through ", micro_batches,
                             " micro-batches in a step, more than ", kMostActions,
                             " passes together; lower cut.micro_batches or cut.shards");
    }
    return MakeSchedule(name, ranks, stages_per_rank, static_cast<int>(micro_batches));
  };
  int64_t at_once = std::max<int64_t>(1, settings.micro_batches_of_rank());
  absl::StatusOr<Schedule> schedule = is_file ? ReadFile(UserPath(file), ranks) : make(at_once);
  if (schedule.ok() && divided != Divided::kNothing && HalvesBackwards(*schedule)) {
    at_once = settings.cut.micro_batches;  // by shards, as the header says
    if (!is_file) schedule = make(at_once);
  }
  if (schedule.ok() && schedule->micro_batches != at_once) {
    schedule = InvalidArgument(UserPath(file), " has ", schedule->micro_batches,
                               " micro-batches, but a rank runs ", at_once, " in one go");
  }
  absl::Status status = schedule.status();
  if (status.ok()) status = Validate(*schedule);
  if (status.ok()) return *std::move(schedule);
  reader.AddProblem(is_file ? "schedule_file" : "schedule",
                    absl::StrCat("cannot be run: ", status.message()));
  return {};
}

}  // namespace lockstep
