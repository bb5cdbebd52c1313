#include "tools/schedule/request.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/file.h"
#include "core/base/nearest.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "strategies/schedules/schedules.h"
#include "tools/arguments/arguments.h"

namespace lockstep {
namespace {

// More than anybody can look at.
constexpr int kMaxStages = 64, kMaxMicroBatches = 256;

const std::map<std::string, FlagKind>& Flags() {
  static const auto& flags =
      *new std::map<std::string, FlagKind>{{"--schedule", FlagKind::kValue},
                                           {"--stages", FlagKind::kValue},
                                           {"--ranks", FlagKind::kValue},
                                           {"--stages-per-rank", FlagKind::kValue},
                                           {"--micro-batches", FlagKind::kValue},
                                           {"--csv", FlagKind::kValue},
                                           {"--forward", FlagKind::kValue},
                                           {"--input-gradient", FlagKind::kValue},
                                           {"--weight-gradient", FlagKind::kValue},
                                           {"--transfer", FlagKind::kValue},
                                           {"--svg", FlagKind::kValue},
                                           {"--write-csv", FlagKind::kValue},
                                           {"--help", FlagKind::kSwitch}};
  return flags;
}

// Ranks and stages of each, from what was given of ranks x stages a rank = stages.
struct Extent {
  int ranks = 0, stages_a_rank = 0;
};

absl::StatusOr<Extent> ReadExtent(const Arguments& arguments, int usual_stages_a_rank) {
  LS_ASSIGN_OR_RETURN(const int stages, arguments.Whole("--stages", 1, kMaxStages, 0));
  LS_ASSIGN_OR_RETURN(int ranks, arguments.Whole("--ranks", 1, kMaxStages, 0));
  LS_ASSIGN_OR_RETURN(int each, arguments.Whole("--stages-per-rank", 1, kMaxStages, 0));
  if (each == 0) each = stages > 0 && ranks > 0 ? stages / ranks : usual_stages_a_rank;
  if (ranks == 0) ranks = stages > 0 ? stages / each : 4;
  if (stages > 0 && ranks * each != stages) {
    return absl::InvalidArgumentError(
        arguments.Has("--ranks") && arguments.Has("--stages-per-rank")
            ? absl::StrCat("--stages ", stages, " is not --ranks ", ranks, " x --stages-per-rank ",
                           each, "; leave one of them out")
            : absl::StrCat("--stages ", stages, " do not divide by ",
                           arguments.Has("--ranks") ? absl::StrCat("--ranks ", ranks)
                                                    : absl::StrCat(each, " stages a rank")));
  }
  if (ranks * each > kMaxStages) {
    return absl::InvalidArgumentError(absl::StrCat("--ranks ", ranks, " x --stages-per-rank ", each,
                                                   " are more than ", kMaxStages, " stages"));
  }
  return Extent{ranks, each};
}

absl::StatusOr<Schedule> Named(const Arguments& arguments) {
  const std::string name = arguments.Value("--schedule", "1f1b");
  const std::vector<std::string> names = ScheduleNames();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--schedule ", name, ": there is no such schedule; did you mean ",
                     NearestName(name, names), "? There are ", absl::StrJoin(names, ", ")));
  }
  const int usual_stages = name == "interleaved_1f1b" ? 2 : DefaultStagesPerRank(name);
  LS_ASSIGN_OR_RETURN(const Extent extent, ReadExtent(arguments, usual_stages));
  LS_ASSIGN_OR_RETURN(const int micro_batches,
                      arguments.Whole("--micro-batches", 1, kMaxMicroBatches, 2 * extent.ranks));
  return MakeSchedule(name, extent.ranks, extent.stages_a_rank, micro_batches);
}

absl::StatusOr<Schedule> FromFile(const Arguments& arguments) {
  for (const char* flag :
       {"--schedule", "--stages", "--ranks", "--stages-per-rank", "--micro-batches"}) {
    if (!arguments.Has(flag)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": the file of --csv says that already; leave one of them out"));
  }
  const std::string path = UserPath(arguments.Value("--csv"));
  LS_ASSIGN_OR_RETURN(const std::string csv, ReadFile(path));
  return ScheduleFromCsv(csv, std::filesystem::path(path).filename().string());
}

// One number for all stages, or one for each: "1" or "1,2,1,1".
absl::Status ReadCosts(const Arguments& arguments, const std::string& flag,
                       double StageCosts::*cost, std::vector<StageCosts>& costs) {
  if (!arguments.Has(flag)) return absl::OkStatus();
  const std::vector<std::string> texts = absl::StrSplit(arguments.Value(flag), ',');
  std::vector<double> values;
  for (const std::string& text : texts) {
    double& value = values.emplace_back();
    if (!absl::SimpleAtod(text, &value) || !(value > 0 && value <= 1e6)) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, " ", arguments.Value(flag), ": '", text, "' is no time above 0"));
    }
  }
  if (values.size() != 1 && values.size() != costs.size()) {
    return absl::InvalidArgumentError(absl::StrCat(flag, " ", arguments.Value(flag), ": give one, ",
                                                   "or one for each of the ", costs.size(),
                                                   " stages"));
  }
  for (size_t i = 0; i < costs.size(); ++i) costs[i].*cost = values[values.size() == 1 ? 0 : i];
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ScheduleRequest> ParseScheduleRequest(const std::vector<std::string>& command_line) {
  LS_ASSIGN_OR_RETURN(const Arguments arguments, Arguments::Parse(command_line, Flags()));
  ScheduleRequest request;
  request.help = arguments.Has("--help");
  if (request.help) return request;
  if (!arguments.words().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", arguments.words()[0], "' belongs to no option; --help lists them"));
  }
  LS_ASSIGN_OR_RETURN(request.schedule,
                      arguments.Has("--csv") ? FromFile(arguments) : Named(arguments));
  LS_RETURN_IF_ERROR(Validate(request.schedule));

  request.costs.resize(request.schedule.stages());
  LS_RETURN_IF_ERROR(ReadCosts(arguments, "--forward", &StageCosts::forward, request.costs));
  LS_RETURN_IF_ERROR(
      ReadCosts(arguments, "--input-gradient", &StageCosts::input_gradient, request.costs));
  LS_RETURN_IF_ERROR(
      ReadCosts(arguments, "--weight-gradient", &StageCosts::weight_gradient, request.costs));
  const std::string transfer = arguments.Value("--transfer", "0");
  if (!absl::SimpleAtod(transfer, &request.transfer) ||
      !(request.transfer >= 0 && request.transfer <= 1e6)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--transfer ", transfer, ": give a time, 0 or above"));
  }

  const std::string stem = std::filesystem::path(request.schedule.name).stem().string();
  request.svg = UserPath(arguments.Value("--svg", absl::StrCat("schedule/", stem, ".svg")));
  if (arguments.Has("--write-csv")) request.csv = UserPath(arguments.Value("--write-csv"));
  return request;
}

std::string ScheduleUsage() {
  return absl::StrCat(
      "Prints and draws what each rank of a pipeline does when, checked and simulated.\n\n"
      "  schedule [options]\n\n"
      "  --schedule NAME        ",
      absl::StrJoin(ScheduleNames(), ", "),
      "; default 1f1b\n"
      "  --stages S             stages = ranks x stages a rank: give one or two of the three,\n"
      "  --ranks P              which decide the others; default 4 ranks with one stage each,\n"
      "  --stages-per-rank V    or two with interleaved_1f1b, zb_v and dualpipe_v\n"
      "  --micro-batches M      default twice the ranks\n"
      "  --csv FILE             a schedule of your own in place of those: a row a rank, a cell\n"
      "                         an action, as 2F3: stage, kind (F forward, B backward, or its\n"
      "                         halves I input gradient and W weight gradient), micro-batch;\n"
      "                         empty cells are skipped\n"
      "  --forward T            time of a forward: one for all stages, or one for each as\n"
      "                         1,2,1,1; default 1, as for all of these but the last\n"
      "  --input-gradient T     of the first half of a backward\n"
      "  --weight-gradient T    of the other half\n"
      "  --transfer T           until another rank has what one has computed; default 0\n"
      "  --svg PATH             the picture to write; default schedule/NAME.svg\n"
      "  --write-csv PATH       writes the schedule as --csv reads it\n"
      "  --help                 this text\n");
}

}  // namespace lockstep
