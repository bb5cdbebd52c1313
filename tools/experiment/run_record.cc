#include "tools/experiment/run_record.h"

#include <cmath>  // std::abs
#include <filesystem>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/status.h"
#include "core/config/config_reader.h"
#include "core/report/error_file.h"
#include "core/report/row_checksums.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::json;

// A number; NaN where JSON says null, and 0 where there is none.
double Number(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return 0;
  return found->is_number() ? found->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

// A whole number; 0 for what is none, or none that a double has exactly.
int64_t Integer(const Json& object, const char* name) {
  const double number = Number(object, name);
  return std::abs(number) <= 0x1p53 ? static_cast<int64_t>(number) : 0;
}

std::string Text(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// The member `name` as an object; an empty one where there is none.
const Json& Member(const Json& object, const char* name) {
  static const Json& empty = *new Json(Json::object());
  const auto found = object.find(name);
  return found != object.end() && found->is_object() ? *found : empty;
}

std::map<std::string, RunCost> Costs(const Json& object) {
  std::map<std::string, RunCost> costs;
  for (const auto& [name, entry] : object.items()) {
    if (!entry.is_object()) continue;
    RunCost& cost = costs[name];
    if (entry.contains("predicted")) cost.predicted = Number(entry, "predicted");
    cost.measured = Number(entry, "measured");
  }
  return costs;
}

std::map<std::string, double> Numbers(const Json& object) {
  std::map<std::string, double> numbers;
  for (const auto& [name, value] : object.items()) {
    if (value.is_number()) numbers[name] = value.get<double>();
  }
  return numbers;
}

// What each rank says of itself, and of their times the mean.
void ReadRanks(const Json& summary, RunRecord& record) {
  const Json ranks = summary.value("per_rank", Json());
  for (const Json& rank : ranks.is_array() ? ranks : Json::array()) {
    if (!rank.is_object()) continue;
    record.per_rank.push_back({.memory_peak = Number(rank, "memory_peak"),
                               .memory_at_peak = Numbers(Member(rank, "memory_at_peak"))});
    for (const auto& [phase, seconds] : Numbers(Member(rank, "time"))) {
      record.time[phase] += seconds / static_cast<double>(ranks.size());
    }
  }
}

void ReadSlowRanks(const Json& summary, RunRecord& record) {
  const Json slow_ranks = summary.value("stragglers", Json());
  for (const Json& slow : slow_ranks.is_array() ? slow_ranks : Json::array()) {
    if (!slow.is_object()) continue;
    record.slow_ranks.push_back({.rank = Integer(slow, "rank"),
                                 .windows = Integer(slow, "windows"),
                                 .part = Text(slow, "part"),
                                 .factor = Number(slow, "largest_factor"),
                                 .seconds = Number(slow, "largest_seconds"),
                                 .step = Integer(slow, "at_step")});
  }
}

// Reads the unit and the number of "samples_per_second".
void ReadThroughput(const Json& summary, RunRecord& record) {
  constexpr char kEnd[] = "_per_second";
  for (const auto& [name, value] : summary.items()) {
    if (!absl::EndsWith(name, kEnd) || !value.is_number()) continue;
    record.unit = std::string(absl::StripSuffix(name, kEnd));
    record.units_per_second = value.get<double>();
  }
}

absl::Status ReadSummary(RunRecord& record, bool* scales_losses) {
  const std::string path = record.directory + "/summary.json";
  LS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const Json summary = ParseJson<Json>(text);
  if (!summary.is_object()) return InvalidArgument(path, ": is no JSON");
  record.workload = Text(summary, "workload");
  record.strategy = Text(summary, "strategy");
  record.mesh = Text(summary, "mesh");
  record.parameter_hash = Text(summary, "parameter_hash");
  record.ranks = Integer(summary, "ranks");
  record.shards = Integer(summary, "shards");
  record.micro_batches = Integer(summary, "micro_batches");
  record.tokens = Integer(summary, "tokens");
  record.features = Integer(summary, "features");
  const int64_t steps = Integer(summary, "steps");
  // validation.patience may have ended it before the last step.
  const bool ended_early = summary.contains("ended_early_of_steps") &&
                           Integer(summary, "ended_early_of_steps") == record.steps;
  if (ended_early) record.steps = steps;
  if (steps != record.steps) {
    return absl::NotFoundError(absl::StrCat(path, ": is of an earlier run of ", steps, " steps"));
  }
  record.loss = Number(summary, "loss");
  record.validation_loss = Number(summary, "validation_loss");
  record.validation_accuracy = Number(summary, "validation_accuracy");
  if (const Json& start = Member(summary, "validation_at_start"); !start.empty()) {
    record.validation_at_start = {.loss = Number(start, "loss"),
                                  .accuracy = Number(start, "accuracy")};
  }
  record.parameters = Integer(summary, "parameters");
  record.trained_parameters = Integer(summary, "trained_parameters");
  record.checkpoint_bytes = Integer(summary, "checkpoint_bytes");
  if (summary.contains("loss_floor")) record.loss_floor = Number(summary, "loss_floor");
  *scales_losses = summary.contains("loss_scale");
  record.step_seconds = Number(summary, "step_seconds");
  record.is_warm_up = summary.value("step_times_are_of_warm_up", Json()) == true;
  record.predicted_step_seconds =
      Number(Member(Member(summary, "time_of_step"), "slowest rank"), "predicted");
  record.memory_peak = Number(summary, "memory_peak");
  record.memory = Costs(Member(summary, "memory"));
  record.traffic = Costs(Member(summary, "traffic_bytes_per_step"));
  ReadRanks(summary, record);
  ReadSlowRanks(summary, record);
  ReadThroughput(summary, record);
  return absl::OkStatus();
}

void ReadLossScale(const Json& row, RunRecord& record) {
  record.loss_scales.push_back(Number(row, "loss_scale"));
  const auto skipped = row.find("skipped");
  if (skipped != row.end() && *skipped == true) {
    record.skipped_steps.push_back(Integer(row, "step"));
  }
}

void ReadExpertLoad(const Json& load, RunRecord& record) {
  record.expert_load.clear();
  for (const auto& [router, fractions] : load.items()) {
    record.expert_load.push_back({.router = router});
    for (const Json& fraction : fractions) {
      record.expert_load.back().fractions.push_back(fraction.is_number() ? fraction.get<double>()
                                                                         : 0.0);
    }
  }
}

void ReadChange(const Json& row, RunRecord& record) {
  record.changes_of_mesh.push_back({.steps = Integer(row, "step") + 1,
                                    .from = Text(row, "change_from"),
                                    .to = Text(row, "change_to"),
                                    .seconds = Number(row, "change_seconds"),
                                    .sent_bytes = Integer(row, "change_bytes")});
}

// Rows of validation have none of this, and rows of steps need not have any.
absl::Status ReadMetrics(bool scales_losses, RunRecord& record) {
  const std::string path = record.directory + "/metrics.jsonl";
  LS_RETURN_IF_ERROR(RowChecksums::CheckBeside(path));
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return scales_losses ? text.status() : absl::OkStatus();
  for (const auto line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    if (!scales_losses && !absl::StrContains(line, "expert_load") &&
        !absl::StrContains(line, "change_from")) {
      continue;
    }
    const Json row = ParseJson<Json>({line.data(), line.size()});
    if (!row.is_object()) continue;
    if (scales_losses && row.contains("loss_scale")) ReadLossScale(row, record);
    if (row.contains("expert_load")) ReadExpertLoad(row["expert_load"], record);
    if (row.contains("change_from")) ReadChange(row, record);
  }
  return absl::OkStatus();
}

// A trace is there to be looked at: without one, nothing is drawn.
std::optional<StepTrace> LastTracedStep(const std::string& directory) {
  const absl::StatusOr<std::string> json = ReadFile(directory + "/trace.json");
  if (!json.ok()) return std::nullopt;
  absl::StatusOr<StepTrace> trace = ReadStepTrace(*json, directory + "/trace.json");
  if (!trace.ok()) return std::nullopt;
  return *std::move(trace);
}

// What is known before a run ends.
void ReadConfig(RunRecord& record) {
  absl::StatusOr<Config> config = Config::FromFile(record.directory + "/config.toml");
  if (!config.ok()) return;
  record.config = *std::move(config);
  ConfigReader top(record.config.Table("")), train(record.config.Table("train"));
  top.Read("name", &record.workload);
  train.Read("steps", &record.steps);
  record.legs = ReadLegs(record.config).value_or(std::vector<Leg>());
}

// Legs that begin behind the last step are not reached, and a run that stays in one leg is like a
// run without legs.
void KeepReachedLegs(RunRecord& record) {
  int64_t begin = 0;
  size_t reached = 0;
  for (; reached < record.legs.size() && begin < record.steps; ++reached) {
    begin += record.legs[reached].steps;
  }
  record.legs.resize(reached > 1 ? reached : 0);
}

std::string LastName(const std::string& directory) {
  std::filesystem::path path = std::filesystem::path(directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // a slash at the end
  return path.filename().string();
}

// On one line.
std::string ReadError(const std::string& directory) {
  const absl::StatusOr<std::string> text = ReadFile(absl::StrCat(directory, "/", kErrorFile));
  if (!text.ok()) return "";
  return absl::StrReplaceAll(absl::StripAsciiWhitespace(*text), {{"\n", " "}});
}

// All but the error. What is wrong with a run is the status; how far it came is the record's state.
absl::Status ReadFiles(RunRecord& record) {
  if (!IsDirectory(record.directory)) {
    return absl::NotFoundError("no such directory");
  }
  ReadConfig(record);
  absl::StatusOr<std::vector<LossPoint>> losses = ReadLossCurve(record.directory + "/losses.csv");
  if (absl::IsNotFound(losses.status())) {
    return absl::NotFoundError("no losses.csv: it never began to train");
  }
  LS_RETURN_IF_ERROR(RowChecksums::CheckBeside(record.directory + "/losses.csv"));
  LS_RETURN_IF_ERROR(losses.status());
  record.losses = *std::move(losses);
  bool scales_losses = false;
  const absl::Status summary = ReadSummary(record, &scales_losses);
  const auto done = static_cast<int64_t>(record.losses.size());
  // A resumed run that did not end may have the summary of the run before it.
  if (absl::IsNotFound(summary) || (summary.ok() && done < record.steps)) {
    record.state = RunRecord::State::kUnfinished;
    return absl::OutOfRangeError(
        record.steps == 0
            ? absl::StrCat("stopped after ", done, " steps; of how many, no config.toml says")
            : absl::StrCat("stopped after ", done, " of ", record.steps, " steps"));
  }
  LS_RETURN_IF_ERROR(summary);
  LS_RETURN_IF_ERROR(ReadMetrics(scales_losses, record));
  LS_ASSIGN_OR_RETURN(record.restarts, ReadRestarts(record.directory));
  record.step_trace = LastTracedStep(record.directory);
  record.state = RunRecord::State::kComplete;
  return absl::OkStatus();
}

}  // namespace

RunRecord ReadRunRecord(const std::string& directory) {
  RunRecord record;
  record.directory = directory;
  record.strategy = LastName(directory);
  record.problem = std::string(ReadFiles(record).message());
  KeepReachedLegs(record);
  record.error = ReadError(directory);
  if (!record.complete() && !record.error.empty()) {
    absl::StrAppend(&record.problem, ": ", record.error);
  }
  return record;
}

}  // namespace lockstep
