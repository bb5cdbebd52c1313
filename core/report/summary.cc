#include "core/report/summary.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/report/chrome_trace.h"
#include "core/report/metrics.h"
#include "core/report/restart_log.h"
#include "core/report/straggler.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using Reports = std::vector<RankReport>;

// The most that any rank has of something.
template <typename Number>
auto MostOf(const Reports& reports, Number number) {
  auto most = std::invoke(number, reports[0]);
  for (const RankReport& report : reports) most = std::max(most, std::invoke(number, report));
  return most;
}

// Bytes of a class: what the strategy predicts (negative: no prediction), and the largest peak of
// any rank.
struct MemoryRow {
  MemoryClass memory_class;
  int64_t predicted = -1;
  int64_t measured = 0;
};

std::vector<MemoryRow> MemoryRows(const Reports& reports) {
  std::vector<MemoryRow> rows;
  for (int i = 0; i < kMemoryClasses; ++i) {
    MemoryRow row = {.memory_class = static_cast<MemoryClass>(i)};
    for (const RankReport& report : reports) {
      row.measured = std::max(row.measured, report.memory.peak(row.memory_class));
      for (const CostPrediction::Memory& memory : report.prediction.memory) {
        if (memory.memory_class != row.memory_class) continue;
        row.predicted = std::max(row.predicted, memory.bytes);
      }
    }
    rows.push_back(row);
  }
  return rows;
}

// Bytes that a rank sends for one purpose, in a step or once in the run, the most of any rank.
struct TrafficRow {
  std::string operation, label;
  CostPrediction::Often often = CostPrediction::Often::kEachStep;
  double predicted = 0;
  double measured = 0;
};

std::vector<TrafficRow> TrafficRows(const Reports& reports) {
  std::vector<TrafficRow> rows;
  const auto row_of = [&rows](Operation operation, const std::string& label) -> TrafficRow& {
    for (TrafficRow& row : rows) {
      if (row.operation == Name(operation) && row.label == label) return row;
    }
    rows.push_back({.operation = Name(operation), .label = label});
    return rows.back();
  };
  for (const RankReport& report : reports) {
    for (const CostPrediction::Traffic& traffic : report.prediction.traffic) {
      TrafficRow& row = row_of(traffic.operation, traffic.label);
      row.predicted = std::max(row.predicted, traffic.wire_bytes);
      row.often = traffic.often;
    }
  }
  for (const RankReport& report : reports) {
    for (const auto& [kind, total] : report.traffic.by_kind) {
      TrafficRow& row = row_of(kind.first, kind.second);
      const int64_t times = row.often == CostPrediction::Often::kOnce ? 1 : report.steps;
      row.measured = std::max(row.measured,
                              total.wire_bytes / static_cast<double>(std::max<int64_t>(1, times)));
    }
  }
  // Such as receiving, and groups of one rank.
  std::erase_if(rows,
                [](const TrafficRow& row) { return row.predicted == 0 && row.measured == 0; });
  return rows;
}

// What share of its steps a rank waits for other stages. Both 0 where there are no stages.
struct Bubble {
  double predicted = 0;
  double measured = 0;
};

Bubble BubbleOf(const RankReport& report) {
  const auto total = static_cast<double>(report.times.total);
  const auto waiting = static_cast<double>(report.times.Of(Phase::kBubble));
  return {report.prediction.bubble_fraction, total == 0 ? 0 : waiting / total};
}

// The same, over all ranks: what part of their time together is lost.
Bubble MeanBubble(const Reports& reports) {
  Bubble sum;
  for (const RankReport& report : reports) {
    const Bubble bubble = BubbleOf(report);
    sum.predicted += bubble.predicted;
    sum.measured += bubble.measured;
  }
  const auto ranks = static_cast<double>(reports.size());
  return {sum.predicted / ranks, sum.measured / ranks};
}

// Not a number when no step was left to run.
double LastLoss(const RankReport& report) {
  return report.losses.empty() ? std::nan("") : report.losses.back();
}

double PerStep(const RankReport& report, int64_t nanos) {
  return static_cast<double>(nanos) * 1e-9 /
         static_cast<double>(std::max<int64_t>(1, report.measured_steps));
}

// Whether the run was over before it was warm: then its times are those of its first steps.
bool IsWarmUp(const RankReport& report) {
  return report.steps > 0 && report.measured_steps == report.steps;
}

// The slowest rank's: a step is over when all have ended.
double StepSeconds(const Reports& reports) {
  return MostOf(reports, &RankReport::median_step_seconds);
}

double UnitsPerSecond(const RunDescription& run, const Reports& reports) {
  const double seconds = StepSeconds(reports);
  return seconds > 0 ? static_cast<double>(run.units_per_step()) / seconds : 0;
}

// Returns the bytes of the newest checkpoint, or 0 where the run keeps none.
int64_t BytesOfCheckpoint(const RunDescription& run) {
  const auto newest = NewestCheckpoint(run.checkpoints());
  if (!newest.ok() || !*newest) return 0;
  return CheckpointBytes(**newest).value_or(0);
}

// What the ranks compute with.
std::string_view InstructionsOf(const RunDescription& run) {
  return run.device == DeviceType::kCpu ? Name(run.settings.instructions) : "CUDA";
}

Json ToJson(const ConfigValue& value) {
  if (const auto* table = value.As<ConfigValue::Table>()) {
    Json object = Json::object();
    for (const auto& [key, member] : *table) object[key] = ToJson(member);
    return object;
  }
  if (const auto* list = value.As<ConfigValue::List>()) {
    Json array = Json::array();
    for (const ConfigValue& element : *list) array.push_back(ToJson(element));
    return array;
  }
  if (const auto* text = value.As<std::string>()) return *text;
  if (const auto* number = value.As<double>()) return *number;
  if (const auto* integer = value.As<int64_t>()) return *integer;
  return *value.As<bool>();
}

Json ToJson(double predicted, double measured) {
  return {{"predicted", predicted}, {"measured", measured}};
}

Json ToJson(const Bubble& bubble) { return ToJson(bubble.predicted, bubble.measured); }

Json ToJson(const RankReport& report) {
  Json time, at_peak;
  for (const auto& [name, nanos] : report.times.ByName()) time[name] = PerStep(report, nanos);
  for (int i = 0; i < kMemoryClasses; ++i) {
    const auto memory_class = static_cast<MemoryClass>(i);
    at_peak[Name(memory_class)] = report.memory.at_peak(memory_class);
  }
  return {{"time", time},
          {"bubble_fraction", ToJson(BubbleOf(report))},
          {"memory_peak", report.memory.peak_total()},
          {"memory_at_peak", at_peak}};
}

// Seconds of a part of a step, predicted (negative: no prediction) and measured.
struct TimeRow {
  const char* name;
  double predicted = 0;
  double measured = 0;
};

std::vector<TimeRow> TimeRows(const TimePrediction& time, const Reports& reports) {
  const RankReport& first = reports[0];
  const auto measured = [&](std::initializer_list<Phase> phases) {
    int64_t nanos = 0;
    for (const Phase phase : phases) nanos += first.times.Of(phase);
    return PerStep(first, nanos);
  };
  return {
      {"slowest rank", time.step, StepSeconds(reports)},
      {"forward and backward", time.compute, measured({Phase::kForward, Phase::kBackward})},
      {"optimizer", time.optimizer, measured({Phase::kOptimizer})},
      {"communication, exposed", time.exposed, PerStep(first, first.times.communication_exposed)},
      {"waiting for other stages", time.bubble, measured({Phase::kBubble})},
      {"data and the rest", -1, measured({Phase::kData, Phase::kOther})}};
}

// Seconds of one checkpoint that was written beside training, on average, on the rank that has the
// most of them.
double PerCheckpoint(const Reports& reports, int64_t CheckpointCosts::*nanos) {
  const int64_t most =
      MostOf(reports, [nanos](const RankReport& report) { return report.checkpoints.*nanos; });
  return static_cast<double>(most) * 1e-9 / static_cast<double>(reports[0].checkpoints.checkpoints);
}

int64_t CopiedBytes(const Reports& reports) {
  return MostOf(reports, [](const RankReport& report) { return report.checkpoints.bytes; });
}

Json CheckpointsJson(const Reports& reports) {
  return {{"written_beside_training", reports[0].checkpoints.checkpoints},
          {"copied_bytes", CopiedBytes(reports)},
          {"held_seconds", PerCheckpoint(reports, &CheckpointCosts::held_nanos)},
          {"waited_seconds", PerCheckpoint(reports, &CheckpointCosts::waited_nanos)},
          {"written_seconds", PerCheckpoint(reports, &CheckpointCosts::written_nanos)}};
}

// How long checkpoints held steps up.
void AddCheckpoints(const Reports& reports, std::string& text) {
  const int64_t count = reports[0].checkpoints.checkpoints;
  if (count == 0) return;
  absl::StrAppend(&text, "  checkpoints: ", count, " written beside training; each held a step up ",
                  FormatDuration(PerCheckpoint(reports, &CheckpointCosts::held_nanos)),
                  " for a copy of ", FormatBytes(CopiedBytes(reports)), ", waited ",
                  FormatDuration(PerCheckpoint(reports, &CheckpointCosts::waited_nanos)),
                  " for the one before, and was whole after ",
                  FormatDuration(PerCheckpoint(reports, &CheckpointCosts::written_nanos)), "\n");
}

// Seconds that checks for wrong bits took beside the steps, on the rank that had most of them.
double GuardSeconds(const Reports& reports) {
  const int64_t most = MostOf(reports, [](const RankReport& report) { return report.guard.nanos; });
  return static_cast<double>(most) * 1e-9;
}

void AddGuard(const Reports& reports, std::string& text) {
  const int64_t steps = reports[0].guard.steps;
  if (steps == 0) return;
  absl::StrAppend(&text, "  wrong bits: looked for in ", steps, " steps, which took ",
                  FormatDuration(GuardSeconds(reports)),
                  " beside them; their own times have the hashes within them\n");
}

// The ranks that were slow in any attempt of the run; in this one where metrics.jsonl cannot be
// read.
std::vector<SlowRank> SlowRanksOf(const RunDescription& run, const RankReport& first) {
  return ReadSlowRanks(run.out + "/metrics.jsonl").value_or(first.slow_ranks);
}

Json SummaryJson(const RunDescription& run, const Reports& reports,
                 const std::optional<TimePrediction>& time) {
  const RankReport& first = reports[0];
  const Settings& settings = run.settings;
  Json memory = Json::object(), traffic = memory, traffic_once = memory, per_parameter = memory;
  for (const MemoryRow& row : MemoryRows(reports)) {
    Json& entry = memory[Name(row.memory_class)];
    if (row.predicted >= 0) entry["predicted"] = row.predicted;
    entry["measured"] = row.measured;
  }
  for (const TrafficRow& row : TrafficRows(reports)) {
    Json& rows = row.often == CostPrediction::Often::kOnce ? traffic_once : traffic;
    rows[absl::StrCat(row.operation, " ", row.label)] = ToJson(row.predicted, row.measured);
  }
  for (const CostPrediction::PerParameter& part : first.prediction.per_parameter) {
    per_parameter[part.what] = part.bytes;
  }
  // The most that a rank has sent before its first step, by what for.
  Json at_start = Json::object();
  for (const RankReport& report : reports) {
    for (const auto& [kind, total] : report.start_traffic.by_kind) {
      if (total.wire_bytes == 0) continue;
      const std::string name = absl::StrCat(Name(kind.first), " ", kind.second);
      at_start[name] = std::max(at_start.value(name, 0.0), total.wire_bytes);
    }
  }
  const auto peak = [](const RankReport& report) { return report.memory.peak_total(); };
  Json ranks = Json::array();
  for (const RankReport& report : reports) ranks.push_back(ToJson(report));
  Json summary = {{"workload", run.workload},
                  {"strategy", run.strategy_name},
                  {"mesh", settings.mesh.ToString()},
                  {"ranks", settings.mesh.ranks()},
                  {"shards", settings.cut.shards},
                  {"tokens", settings.cut.tokens},
                  {"features", settings.cut.features},
                  {"micro_batches", settings.cut.micro_batches},
                  {"steps", first.steps_behind},
                  {"threads", settings.threads},
                  {"config", run.config.Fingerprint()},
                  {"configuration", ToJson(*run.config.Table("").value)},
                  {"parameters", run.parameters},
                  {"trained_parameters", run.trained_parameters},
                  {"loss", LastLoss(first)},
                  {"validation_loss", first.validation.loss},
                  {"validation_accuracy", first.validation.accuracy},
                  {"parameter_hash", first.parameter_hash},
                  {"step_seconds", StepSeconds(reports)},
                  {run.unit() + "_per_second", UnitsPerSecond(run, reports)},
                  {"memory_peak", MostOf(reports, peak)},
                  {"memory", memory},
                  {"instructions", InstructionsOf(run)},
                  {"compute", Name(settings.precision.compute)},
                  {"reduce", Name(settings.precision.reduce)},
                  {"bytes_per_parameter", per_parameter},
                  {"traffic_bytes_per_step", traffic},
                  {"traffic_bytes_once", traffic_once},
                  {"traffic_bytes_at_start", at_start},
                  {"bubble_fraction", ToJson(MeanBubble(reports))},
                  {"per_rank", ranks}};
  if (first.ended_early) summary["ended_early_of_steps"] = settings.steps;
  if (IsWarmUp(first)) summary["step_times_are_of_warm_up"] = true;
  if (time && !time->missing.empty()) summary["time_not_predicted"] = time->missing;
  if (time && time->missing.empty()) {
    Json& times = summary["time_of_step"];
    for (const TimeRow& row : TimeRows(*time, reports)) {
      if (row.predicted >= 0) times[row.name]["predicted"] = row.predicted;
      times[row.name]["measured"] = row.measured;
    }
  }
  for (const MeshChange& change : first.changes) {
    summary["changes_of_mesh"].push_back(
        {{"steps", change.steps},
         {"from", change.from},
         {"to", change.to},
         {"seconds", change.seconds},
         {"bytes", {{"predicted", change.planned_bytes}, {"measured", change.sent_bytes}}}});
  }
  // The ranks that the run has lost so far. Where the file is damaged, AddRestarts says so.
  const auto restarts = ReadRestarts(run.out);
  for (const Restart& restart : restarts.value_or(std::vector<Restart>())) {
    summary["restarts"].push_back(Json::parse(restart.ToRow()));
  }
  for (const SlowRank& slow : SlowRanksOf(run, first)) {
    summary["stragglers"].push_back({{"rank", slow.worst.rank},
                                     {"part", Name(slow.worst.part)},
                                     {"windows", slow.windows},
                                     {"largest_factor", slow.worst.factor},
                                     {"largest_seconds", slow.worst.seconds},
                                     {"at_step", slow.worst.step}});
  }
  if (const auto& start = first.validation_at_start) {
    summary["validation_at_start"] = {{"loss", start->loss}, {"accuracy", start->accuracy}};
  }
  if (const int64_t bytes = BytesOfCheckpoint(run); bytes > 0) summary["checkpoint_bytes"] = bytes;
  if (first.checkpoints.checkpoints > 0) summary["checkpoints"] = CheckpointsJson(reports);
  if (first.guard.steps > 0) {
    summary["guard"] = {{"checked_steps", first.guard.steps}, {"seconds", GuardSeconds(reports)}};
  }
  if (settings.precision.scales_losses()) {
    summary["loss_scale"] = first.loss_scale;
    summary["skipped_steps"] = first.skipped_steps;
  }
  if (const auto rate = run.dataset->entropy_rate()) summary["entropy_rate"] = *rate;
  if (const auto floor = run.dataset->loss_floor()) summary["loss_floor"] = *floor;
  return summary;
}

// Begins a table of what was predicted beside what was measured, and adds a line to one.
void AddHeading(const std::string& title, std::string& text) {
  absl::StrAppendFormat(&text, "  %-32s %14s %14s\n", title, "predicted", "measured");
}
void AddLine(const std::string& name, const std::string& predicted, const std::string& measured,
             std::string& text) {
  absl::StrAppendFormat(&text, "    %-30s %14s %14s\n", name, predicted, measured);
}

void AddMemory(const Reports& reports, std::string& text) {
  AddHeading("memory of a rank", text);
  for (const MemoryRow& row : MemoryRows(reports)) {
    AddLine(Name(row.memory_class), row.predicted < 0 ? "-" : FormatBytes(row.predicted),
            FormatBytes(row.measured), text);
  }
}

void AddBubbles(const Reports& reports, std::string& text) {
  AddHeading("share of a step spent waiting", text);
  const auto add = [&text](const std::string& whose, const Bubble& bubble) {
    AddLine(whose, absl::StrFormat("%.1f %%", 100 * bubble.predicted),
            absl::StrFormat("%.1f %%", 100 * bubble.measured), text);
  };
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    add(absl::StrCat("rank ", rank), BubbleOf(reports[rank]));
  }
  add("all together", MeanBubble(reports));
}

void AddTraffic(const Reports& reports, CostPrediction::Often often, const std::string& title,
                std::string& text) {
  std::vector<TrafficRow> rows = TrafficRows(reports);
  std::erase_if(rows, [often](const TrafficRow& row) { return row.often != often; });
  if (!rows.empty()) AddHeading(title, text);
  for (const TrafficRow& row : rows) {
    AddLine(absl::StrCat(row.operation, " ", row.label), absl::StrFormat("%.0f", row.predicted),
            absl::StrFormat("%.0f", row.measured), text);
  }
}

std::string CutText(const CutSettings& cut) {
  const auto leaves = [](int64_t count, const char* what, bool are_of_mesh) {
    return absl::StrCat(count == 1 ? "" : absl::StrCat("; ", count, " ", what, " leaves"),
                        are_of_mesh ? ", as the mesh says" : "");
  };
  return absl::StrCat("cut: ", cut.shards, cut.shards == 1 ? " shard" : " shards",
                      cut.shards_are_of_mesh ? ", as the mesh says, not [cut]" : "", "; ",
                      cut.micro_batches,
                      cut.micro_batches == 1 ? " micro-batch each" : " micro-batches each",
                      leaves(cut.tokens, "token", cut.tokens_are_of_mesh),
                      leaves(cut.features, "feature", cut.features_are_of_mesh));
}

// The whole step of the slowest rank, and its parts on rank 0.
void AddTimes(const TimePrediction& time, const Reports& reports, std::string& text) {
  if (!time.missing.empty()) {
    absl::StrAppend(&text, "  time of a step is not predicted: ", time.missing, "\n");
    return;
  }
  AddHeading("time of a step", text);
  for (const TimeRow& row : TimeRows(time, reports)) {
    AddLine(row.name, row.predicted < 0 ? "-" : FormatDuration(row.predicted),
            FormatDuration(row.measured), text);
  }
}

void AddChanges(const RankReport& first, std::string& text) {
  if (first.changes.empty()) return;
  AddHeading("bytes sent in changes of mesh", text);
  for (const MeshChange& change : first.changes) {
    AddLine(absl::StrCat("after step ", change.steps, ", ", FormatDuration(change.seconds)),
            absl::StrCat(change.planned_bytes), absl::StrCat(change.sent_bytes), text);
    absl::StrAppend(&text, "      ", change.from, " -> ", change.to, "\n");
  }
}

void AddSlowRanks(const RunDescription& run, const RankReport& first, std::string& text) {
  for (const SlowRank& slow : SlowRanksOf(run, first)) {
    const Straggler& worst = slow.worst;
    absl::StrAppendFormat(
        &text,
        "  rank %d was slow %d times: at step %d %.1f times the time of others with "
        "the same work, %s longer, most of it in %s\n",
        worst.rank, slow.windows, worst.step + 1, worst.factor, FormatDuration(worst.seconds),
        Name(worst.part));
  }
}

void AddRestarts(const RunDescription& run, std::string& text) {
  const auto restarts = ReadRestarts(run.out);
  if (!restarts.ok()) {
    absl::StrAppend(&text, "  lost ranks are not listed: ", restarts.status().message(), "\n");
  } else if (!restarts->empty()) {
    absl::StrAppend(&text, "  lost ranks\n", RestartsTable(*restarts));
  }
}

std::string SummaryText(const RunDescription& run, const Reports& reports,
                        const std::optional<TimePrediction>& time) {
  const RankReport& first = reports[0];
  std::string text = absl::StrFormat(
      "%s  %s  %s\n"
      "  loss %.6f   validation loss %.4f   accuracy %.2f %%\n"
      "  step %s   %s %s/s   %s\n",
      run.workload, run.strategy_name, run.settings.mesh.ToString(), LastLoss(first),
      first.validation.loss, 100 * first.validation.accuracy, FormatDuration(StepSeconds(reports)),
      FormatCount(static_cast<int64_t>(UnitsPerSecond(run, reports))), run.unit(),
      InstructionsOf(run));
  if (IsWarmUp(first)) {
    absl::StrAppend(&text, "  times are of the first ", first.steps,
                    first.steps == 1 ? " step" : " steps",
                    ", which warm up: a run of more steps measures those behind them\n");
  }
  if (first.ended_early) {
    absl::StrAppend(&text, "  ended after step ", first.steps_behind, " of ", run.settings.steps,
                    ": validation.patience validations in a row had no lower loss\n");
  }
  absl::StrAppend(&text, "  ", CutText(run.settings.cut), "\n");
  if (const auto& start = first.validation_at_start) {
    absl::StrAppendFormat(&text, "  at the start: validation loss %.4f   accuracy %.2f %%\n",
                          start->loss, 100 * start->accuracy);
  }
  if (run.trained_parameters < run.parameters) {
    absl::StrAppend(&text, "  trains ", FormatCount(run.trained_parameters), " of ",
                    FormatCount(run.parameters), " parameters   checkpoint ",
                    FormatBytes(BytesOfCheckpoint(run)), "\n");
  }
  AddCheckpoints(reports, text);
  AddGuard(reports, text);
  if (run.settings.mesh.divided_axes() > 1) text += run.settings.mesh.Grid();
  if (const auto floor = run.dataset->loss_floor()) {
    absl::StrAppendFormat(&text, "  floor of the loss %.4f, entropy rate %.4f\n", *floor,
                          run.dataset->entropy_rate().value_or(*floor));
  }
  if (run.settings.precision.scales_losses()) {
    absl::StrAppendFormat(&text, "  loss scale %g, %d steps skipped\n", first.loss_scale,
                          first.skipped_steps);
  }
  absl::StrAppendFormat(&text, "  time of a step, rank 0:");
  for (int i = 0; i < kPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    absl::StrAppend(&text, "  ", Name(phase), " ",
                    FormatDuration(PerStep(first, first.times.Of(phase))));
  }
  absl::StrAppend(&text, "  communication ",
                  FormatDuration(PerStep(first, first.times.communication_exposed)), " exposed, ",
                  FormatDuration(PerStep(first, first.times.communication_overlapped)),
                  " overlapped\n");
  if (time) AddTimes(*time, reports, text);
  AddMemory(reports, text);
  absl::StrAppend(&text, "  bytes for each parameter:");
  double bytes = 0;
  for (const CostPrediction::PerParameter& part : first.prediction.per_parameter) {
    absl::StrAppendFormat(&text, "  %s %g", part.what, part.bytes);
    bytes += part.bytes;
  }
  absl::StrAppendFormat(&text, "  together %g\n", bytes);
  if (run.settings.mesh.pp > 1) AddBubbles(reports, text);
  AddTraffic(reports, CostPrediction::Often::kEachStep, "sent by a rank in a step", text);
  AddTraffic(reports, CostPrediction::Often::kOnce, "sent by a rank in the first one", text);
  AddChanges(first, text);
  AddSlowRanks(run, first, text);
  AddRestarts(run, text);
  return text;
}

}  // namespace

absl::Status WriteRunSummary(const RunDescription& run, const Reports& reports,
                             const std::optional<TimePrediction>& time) {
  std::vector<const TraceRecord*> traces;
  for (const RankReport& report : reports) traces.push_back(&report.trace);
  for (const TraceRecord& trace : reports[0].idle_traces) traces.push_back(&trace);
  LS_RETURN_IF_ERROR(WriteChromeTrace(run.out + "/trace.json", traces));
  // The last file: a run that has a summary is complete.
  const std::string summary = run.out + "/summary.json";
  const absl::Status written = WriteSummary(summary, SummaryJson(run, reports, time));
  if (!written.ok()) {
    RemoveTree(summary);  // it may be in place, but not on the disk: a resumed run makes it anew
    return written;
  }
  std::fputs((SummaryText(run, reports, time) + "  " + run.out + "\n").c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace lockstep
