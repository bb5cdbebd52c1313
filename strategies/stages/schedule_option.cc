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

absl::StatusOr<Schedule> FromCsv(const std::string& csv, const std::string& name, int ranks) {
  LS_ASSIGN_OR_RETURN(Schedule schedule, ScheduleFromCsv(csv, name));
  if (static_cast<int>(schedule.ranks.size()) == ranks) return schedule;
  return InvalidArgument(name, " has ", schedule.ranks.size(), " rows, one a rank, but mesh.pp is ",
                         ranks);
}

absl::StatusOr<Schedule> FromFile(const std::string& path, int ranks) {
  LS_ASSIGN_OR_RETURN(const std::string csv, ReadFile(path));
  return FromCsv(csv, path, ranks);
}

}  // namespace

Schedule ReadSchedule(ConfigReader& reader, const Settings& settings, Divided divided) {
  std::string name = "1f1b", file, actions;
  reader.Read("schedule", &name);
  reader.Read("schedule_file", &file);
  reader.Read("actions", &actions);
  int stages_per_rank = DefaultStagesPerRank(name);
  reader.Read("stages_per_rank", &stages_per_rank, {.at_least = 1, .at_most = kMostLayers});
  const int ranks = settings.mesh.pp;
  const std::string key = !actions.empty() ? "actions"
                          : !file.empty()  ? "schedule_file"
                                           : "schedule";
  const bool is_written = key != "schedule";
  if (is_written && (reader.IsGiven("schedule") || reader.IsGiven("stages_per_rank"))) {
    reader.AddProblem(key, "says all; leave schedule and stages_per_rank out");
  }
  if (!actions.empty() && !file.empty()) {
    reader.AddProblem(key, "says all; leave schedule_file out");
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
  absl::StatusOr<Schedule> schedule = !actions.empty() ? FromCsv(actions, "pipeline.actions", ranks)
                                      : !file.empty()  ? FromFile(UserPath(file), ranks)
                                                       : make(at_once);
  if (schedule.ok() && divided != Divided::kNothing && HalvesBackwards(*schedule)) {
    at_once = settings.cut.micro_batches;  // by shards, as the header says
    if (!is_written) schedule = make(at_once);
  }
  if (schedule.ok() && schedule->micro_batches != at_once) {
    schedule = InvalidArgument(schedule->name, " has ", schedule->micro_batches,
                               " micro-batches, but a rank runs ", at_once, " in one go");
  }
  absl::Status status = schedule.status();
  if (status.ok()) status = Validate(*schedule);
  if (status.ok()) return *std::move(schedule);
  reader.AddProblem(key, absl::StrCat("cannot be run: ", status.message()));
  return {};
}

}  // namespace lockstep
