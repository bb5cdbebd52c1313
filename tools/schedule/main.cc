// A pipeline's schedule, printed and drawn.
//
//   ./bazelw run //tools/schedule -- --schedule 1f1b --stages 4 --micro_batches 8
//   ./bazelw run //tools/schedule -- --csv mine.csv --transfer 0.2

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/file.h"
#include "core/base/flags.h"
#include "core/base/nearest.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "strategies/schedules/named_schedules.h"
#include "tools/experiment/outputs.h"
#include "tools/experiment/paths.h"
#include "tools/schedule/text.h"
#include "tools/schedule/timeline.h"

ABSL_FLAG(std::optional<std::string>, schedule, std::nullopt, "its name; default 1f1b");
ABSL_FLAG(std::optional<int>, stages, std::nullopt, "stages of all ranks");
ABSL_FLAG(std::optional<int>, ranks, std::nullopt, "ranks of the pipeline");
ABSL_FLAG(std::optional<int>, stages_per_rank, std::nullopt, "stages of each rank");
ABSL_FLAG(std::optional<int>, micro_batches, std::nullopt, "default twice the ranks");
ABSL_FLAG(std::string, csv, "", "the file of a schedule of your own, in place of a name and sizes");
ABSL_FLAG(std::vector<std::string>, forward, {"1"}, "time of a forward");
ABSL_FLAG(std::vector<std::string>, input_gradient, {"1"}, "time of the first half of a backward");
ABSL_FLAG(std::vector<std::string>, weight_gradient, {"1"}, "time of the other half");
ABSL_FLAG(double, transfer, 0, "time until another rank has what one has computed");
ABSL_FLAG(std::string, svg, "", "the picture to write; default schedule/NAME.svg");
ABSL_FLAG(std::string, write_csv, "", "the file to write the schedule to, as --csv reads it");

namespace lockstep {
namespace {

// More than anybody can look at.
constexpr int kMaxStages = 64, kMaxMicroBatches = 256;

// Ranks and stages of each, from what was given of ranks x stages a rank = stages.
struct Extent {
  int ranks = 0, stages_a_rank = 0;
};

absl::StatusOr<Extent> ReadExtent(int usual_stages_a_rank) {
  const std::optional<int> given_stages = absl::GetFlag(FLAGS_stages);
  const std::optional<int> given_ranks = absl::GetFlag(FLAGS_ranks);
  const std::optional<int> given_each = absl::GetFlag(FLAGS_stages_per_rank);
  LS_RETURN_IF_ERROR(CheckRange("stages", given_stages.value_or(1), 1, kMaxStages));
  LS_RETURN_IF_ERROR(CheckRange("ranks", given_ranks.value_or(1), 1, kMaxStages));
  LS_RETURN_IF_ERROR(CheckRange("stages_per_rank", given_each.value_or(1), 1, kMaxStages));
  const int stages = given_stages.value_or(0);
  const int each =
      given_each.value_or(stages > 0 && given_ranks ? stages / *given_ranks : usual_stages_a_rank);
  const int ranks = given_ranks.value_or(stages > 0 ? stages / each : 4);
  if (stages > 0 && ranks * each != stages) {
    return absl::InvalidArgumentError(
        given_ranks && given_each
            ? absl::StrCat("--stages ", stages, " is not --ranks ", ranks, " x --stages_per_rank ",
                           each, "; leave one of them out")
            : absl::StrCat("--stages ", stages, " do not divide by ",
                           given_ranks ? absl::StrCat("--ranks ", ranks)
                                       : absl::StrCat(each, " stages a rank")));
  }
  if (ranks * each > kMaxStages) {
    return InvalidArgument("--ranks ", ranks, " x --stages_per_rank ", each, " are more than ",
                           kMaxStages, " stages");
  }
  return Extent{ranks, each};
}

absl::StatusOr<Schedule> Named() {
  const std::string name = absl::GetFlag(FLAGS_schedule).value_or("1f1b");
  LS_RETURN_IF_ERROR(FindName("schedule", name, ScheduleNames()).status());
  const int usual_stages = name == "interleaved_1f1b" ? 2 : DefaultStagesPerRank(name);
  LS_ASSIGN_OR_RETURN(const Extent extent, ReadExtent(usual_stages));
  const int micro_batches = absl::GetFlag(FLAGS_micro_batches).value_or(2 * extent.ranks);
  LS_RETURN_IF_ERROR(CheckRange("micro_batches", micro_batches, 1, kMaxMicroBatches));
  return MakeSchedule(name, extent.ranks, extent.stages_a_rank, micro_batches);
}

absl::StatusOr<Schedule> FromFile(const std::string& path) {
  for (const auto& [flag, is_given] :
       {std::pair("schedule", absl::GetFlag(FLAGS_schedule).has_value()),
        {"stages", absl::GetFlag(FLAGS_stages).has_value()},
        {"ranks", absl::GetFlag(FLAGS_ranks).has_value()},
        {"stages_per_rank", absl::GetFlag(FLAGS_stages_per_rank).has_value()},
        {"micro_batches", absl::GetFlag(FLAGS_micro_batches).has_value()}}) {
    if (!is_given) continue;
    return InvalidArgument("--", flag,
                           ": the file of --csv says that already; leave one of them out");
  }
  LS_ASSIGN_OR_RETURN(const std::string csv, ReadFile(path));
  return ScheduleFromCsv(csv, std::filesystem::path(path).filename().string());
}

// By stage. A flag has one number for all stages, or one for each: "1" or "1,2,1,1".
absl::StatusOr<std::vector<StageCosts>> CostsFromFlags(int stages) {
  std::vector<StageCosts> costs(stages);
  for (const auto& [flag, texts, cost] :
       {std::tuple("forward", absl::GetFlag(FLAGS_forward), &StageCosts::forward),
        {"input_gradient", absl::GetFlag(FLAGS_input_gradient), &StageCosts::input_gradient},
        {"weight_gradient", absl::GetFlag(FLAGS_weight_gradient), &StageCosts::weight_gradient}}) {
    const std::string given = absl::StrCat("--", flag, " ", absl::StrJoin(texts, ","));
    if (texts.size() != 1 && texts.size() != costs.size()) {
      return InvalidArgument(given, ": give one, or one for each of the ", stages, " stages");
    }
    for (size_t stage = 0; stage < costs.size(); ++stage) {
      const std::string& text = texts[texts.size() == 1 ? 0 : stage];
      double& value = costs[stage].*cost;
      if (!absl::SimpleAtod(text, &value) || !(value > 0 && value <= 1e6)) {
        return InvalidArgument(given, ": '", text, "' is no time above 0");
      }
    }
  }
  return costs;
}

absl::StatusOr<int> Run(const std::vector<std::string>& /*words*/) {
  const std::string csv = absl::GetFlag(FLAGS_csv), write_csv = absl::GetFlag(FLAGS_write_csv);
  LS_ASSIGN_OR_RETURN(const Schedule schedule, csv.empty() ? Named() : FromFile(UserPath(csv)));
  std::string svg = absl::GetFlag(FLAGS_svg);
  if (svg.empty()) {
    const std::string stem = std::filesystem::path(schedule.name).stem().string();
    svg = absl::StrCat("schedule/", stem, ".svg");
  }
  svg = UserPath(svg);
  std::vector<OutputFile> outputs = {OutputThatBeginsWith(svg, "an SVG picture", "<svg")};
  if (!write_csv.empty()) {
    outputs.push_back({.path = UserPath(write_csv),
                       .kind = "a schedule",
                       .is_of_kind = [](std::string_view contents) {
                         return ScheduleFromCsv(std::string(contents), "").ok();
                       }});
  }
  LS_RETURN_IF_ERROR(
      CheckOutputs(outputs, csv.empty() ? std::vector<std::string>() : std::vector{UserPath(csv)}));
  LS_RETURN_IF_ERROR(Validate(schedule));
  LS_ASSIGN_OR_RETURN(const std::vector<StageCosts> costs, CostsFromFlags(schedule.stages()));
  const double transfer = absl::GetFlag(FLAGS_transfer);
  if (!(transfer >= 0 && transfer <= 1e6)) {
    return InvalidArgument("--transfer ", transfer, ": give a time, 0 or above");
  }
  const TimedSchedule timed = {.schedule = schedule,
                               .costs = costs,
                               .transfer = transfer,
                               .simulation = Simulate(schedule, costs, transfer)};
  std::printf("%s\n", ScheduleReport(timed).c_str());
  LS_RETURN_IF_ERROR(WriteOutput(svg, Timeline(timed)));
  std::printf("timeline %s\n", svg.c_str());
  if (!write_csv.empty()) {
    LS_RETURN_IF_ERROR(WriteOutput(UserPath(write_csv), ScheduleToCsv(schedule)));
    std::printf("schedule %s\n", UserPath(write_csv).c_str());
  }
  return 0;
}

ProgramFlags Flags() {
  return {
      .usage = absl::StrCat(
          "Prints and draws what each rank of a pipeline does when, checked and simulated.\n\n"
          "  schedule [options]\n\n"
          "Schedules: ",
          absl::StrJoin(ScheduleNames(), ", "),
          ".\nstages = ranks x stages_per_rank: give one or two of the three, which decide the "
          "others; by\ndefault 4 ranks with one stage each, or two with interleaved_1f1b, zb_v "
          "and dualpipe_v.\nA file of --csv has a row a rank and a cell an action, as 2F3: stage, "
          "kind (F forward,\nB backward, or its halves I input gradient and W weight gradient), "
          "micro-batch; empty cells\nare skipped. A time is one number for all stages, or one for "
          "each, as 1,2,1,1."),
      .files = {__FILE__, kOverwriteFlagFile}};
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(argc, argv, lockstep::Flags(), lockstep::Run);
}
