#include "strategies/stages/schedule_option.h"

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "strategies/schedules/named_schedules.h"

namespace lockstep {
namespace {

absl::StatusOr<Schedule> ReadFile(const std::string& path, int ranks, int micro_batches) {
  LS_ASSIGN_OR_RETURN(const std::string csv, lockstep::ReadFile(path));
  LS_ASSIGN_OR_RETURN(Schedule schedule, ScheduleFromCsv(csv, path));
  if (static_cast<int>(schedule.ranks.size()) != ranks) {
    return absl::InvalidArgumentError(absl::StrCat(path, " has ", schedule.ranks.size(),
                                                   " rows, one a rank, but mesh.pp is ", ranks));
  }
  if (schedule.micro_batches != micro_batches) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " has ", schedule.micro_batches, " micro-batches, but a shard has ", micro_batches));
  }
  return schedule;
}

}  // namespace

Schedule ReadSchedule(ConfigReader& reader, const Settings& settings) {
  std::string name = "1f1b", file;
  reader.Read("schedule", &name);
  reader.Read("schedule_file", &file);
  int stages_per_rank = DefaultStagesPerRank(name);
  reader.Read("stages_per_rank", &stages_per_rank, {.at_least = 1});
  const int ranks = settings.mesh.pp;
  const int micro_batches = static_cast<int>(settings.cut.micro_batches);
  const bool is_file = !file.empty();
  if (is_file && (reader.IsGiven("schedule") || reader.IsGiven("stages_per_rank"))) {
    reader.AddProblem("schedule_file", "says all; leave schedule and stages_per_rank out");
  }
  absl::StatusOr<Schedule> schedule =
      is_file ? ReadFile(UserPath(file), ranks, micro_batches)
              : MakeSchedule(name, ranks, stages_per_rank, micro_batches);
  absl::Status status = schedule.status();
  if (status.ok()) status = Validate(*schedule);
  if (status.ok()) return *std::move(schedule);
  reader.AddProblem(is_file ? "schedule_file" : "schedule",
                    absl::StrCat("cannot be run: ", status.message()));
  return {};
}

}  // namespace lockstep
