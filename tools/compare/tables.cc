#include "tools/compare/tables.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/clock.h"
#include "core/report/restart_log.h"
#include "tools/compare/costs.h"

namespace lockstep {
namespace {

constexpr Table::Align kLeft = Table::Align::kLeft;

using Runs = std::vector<const ComparedRun*>;

struct RunColumn {
  std::string title;
  std::function<std::string(const ComparedRun&)> cell;
  Table::Align align = Table::Align::kRight;
};

Table TableOf(const std::string& title, const Runs& runs, const std::vector<RunColumn>& columns) {
  Table table = {.title = title, .columns = {{"strategy", kLeft}}};
  for (const RunColumn& column : columns) table.columns.push_back({column.title, column.align});
  for (const ComparedRun* run : runs) {
    std::vector<std::string>& row = table.rows.emplace_back();
    row.push_back(run->label);
    for (const RunColumn& column : columns) row.push_back(column.cell(*run));
  }
  return table;
}

// A whole number, in groups of three digits: of bytes, one too many is to be seen.
std::string InGroups(double number) {
  std::string digits = absl::StrFormat("%.0f", number);
  for (int place = static_cast<int>(digits.size()) - 3; place > 0; place -= 3) {
    digits.insert(place, ",");
  }
  return digits;
}

std::string Difference(const ComparedRun& compared) {
  if (compared.is_reference) return "reference";
  if (!compared.curve) {
    const RunRecord& run = compared.run;
    return absl::StrFormat("no %s of %d x %d", HasAdapters(run) ? "lora" : "single", run.shards,
                           run.micro_batches);
  }
  const CurveComparison& curve = *compared.curve;
  const std::string extent =
      compared.same_length ? "" : absl::StrFormat(" (first %d steps)", curve.compared);
  if (curve.largest) {
    return absl::StrFormat("%.1e at step %d%s", curve.largest->relative, curve.largest->step,
                           extent);
  }
  if (!compared.same_length) return "0" + extent;
  return compared.same_parameters ? "0 (exact)" : "0, but other parameters";
}

// With the accuracy of images' classes.
std::string LossAndAccuracy(const RunRecord& run, double loss, double accuracy) {
  const std::string text = absl::StrFormat("%.4f", loss);
  return run.unit == "samples" ? absl::StrFormat("%s, accuracy %.2f %%", text, 100 * accuracy)
                               : text;
}

std::string Validation(const RunRecord& run) {
  const std::string text = LossAndAccuracy(run, run.validation_loss, run.validation_accuracy);
  return run.loss_floor ? absl::StrFormat("%s, floor %.4f", text, *run.loss_floor) : text;
}

std::string ValidationAtStart(const RunRecord& run) {
  const auto& start = run.validation_at_start;
  return start ? LossAndAccuracy(run, start->loss, start->accuracy) : "-";
}

// "loss against single", or whatever the references are.
std::string DifferenceTitle(const Runs& runs) {
  std::set<std::string> references;
  for (const ComparedRun* compared : runs) {
    if (compared->is_reference) references.insert(compared->run.strategy);
  }
  if (references.empty()) references.insert("single");
  return "loss against " + absl::StrJoin(references, " or ");
}

std::string Bytes(double bytes) { return FormatBytes(std::llround(bytes)); }

// "4.0 MiB / 3.9 MiB"; of what is not predicted the first alone.
std::string MeasuredAndPredicted(const std::map<std::string, RunCost>& costs,
                                 const std::string& name, std::string (*format)(double)) {
  const auto cost = costs.find(name);
  if (cost == costs.end()) return "-";
  const auto& [predicted, measured] = cost->second;
  return predicted ? absl::StrCat(format(measured), " / ", format(*predicted)) : format(measured);
}

// What a run names "all_reduce gradients" and "all_reduce loss", added up as "all_reduce". What is
// not predicted counts as predicted to be nothing.
std::map<std::string, RunCost> SentByOperation(const RunRecord& run) {
  std::map<std::string, RunCost> sums;
  for (const auto& [call, cost] : run.traffic) {
    RunCost& sum = sums[call.substr(0, call.find(' '))];
    sum.measured += cost.measured;
    sum.predicted = sum.predicted.value_or(0) + cost.predicted.value_or(0);
  }
  return sums;
}

constexpr int64_t kColumns = 48;
constexpr size_t kNamedSteps = 8;
constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr int kLevels = 8;

std::string BlocksOf(const std::vector<double>& scales, double lowest, double highest) {
  const auto steps = static_cast<int64_t>(scales.size());
  const int64_t columns = std::min(kColumns, steps);
  const double range = std::log2(highest) - std::log2(lowest);
  std::string drawing;
  for (int64_t column = 0; column < columns; ++column) {
    // A dip must not fall between two columns: each shows the lowest of its steps.
    const double scale = *std::min_element(scales.begin() + column * steps / columns,
                                           scales.begin() + (column + 1) * steps / columns);
    const double height = range > 0 ? (std::log2(scale) - std::log2(lowest)) / range : 1;
    drawing += kBlocks[static_cast<int>(std::lround(height * (kLevels - 1)))];
  }
  return drawing;
}

std::string MeshOf(const RunRecord& run) {
  return absl::StrCat(run.ranks == 1 ? "-" : ShortMesh(run.mesh),
                      run.legs.empty() ? "" : ", last leg");
}

Table ResultTable(const Runs& runs) {
  std::vector<RunColumn> columns = {
      {"ranks", [](auto& of) { return absl::StrCat(of.run.ranks); }},
      {"mesh", [](auto& of) { return MeshOf(of.run); }, kLeft},
      {"shards x micro",
       [](auto& of) { return absl::StrCat(of.run.shards, " x ", of.run.micro_batches); }},
      {"steps", [](auto& of) { return absl::StrCat(of.run.steps); }},
      {"final loss", [](auto& of) { return absl::StrFormat("%.6f", of.run.loss); }},
      {DifferenceTitle(runs), Difference},
      {"validation loss", [](auto& of) { return Validation(of.run); }, kLeft}};
  const auto has_start = [](const ComparedRun* of) {
    return of->run.validation_at_start.has_value();
  };
  if (std::ranges::any_of(runs, has_start)) {
    columns.push_back({"at the start", [](auto& of) { return ValidationAtStart(of.run); }, kLeft});
  }
  return TableOf("", runs, columns);
}

Table TrainedTable(const Runs& runs) {
  return TableOf(
      "what is trained, and what is kept of it", runs,
      {{"parameters", [](auto& of) { return InGroups(static_cast<double>(of.run.parameters)); }},
       {"trained",
        [](auto& of) { return InGroups(static_cast<double>(of.run.trained_parameters)); }},
       {"of all",
        [](auto& of) {
          return absl::StrFormat("%.2f %%", 100 * static_cast<double>(of.run.trained_parameters) /
                                                static_cast<double>(of.run.parameters));
        }},
       {"checkpoint", [](auto& of) {
          return of.run.checkpoint_bytes > 0 ? FormatBytes(of.run.checkpoint_bytes) : "-";
        }}});
}

Table TimeTable(const Runs& runs) {
  std::vector<RunColumn> columns = {
      {runs[0]->run.unit + "/s",
       [](auto& of) { return FormatCount(std::llround(of.run.units_per_second)); }},
      {"step", [](auto& of) { return FormatDuration(of.run.step_seconds); }}};
  const auto predicted = [](const ComparedRun& of) { return of.run.predicted_step_seconds; };
  if (std::ranges::any_of(runs, [&](const auto* run) { return predicted(*run) > 0; })) {
    columns.push_back({"predicted", [predicted](auto& of) {
                         return predicted(of) > 0 ? FormatDuration(predicted(of)) : "-";
                       }});
  }
  for (const Category& category : kTimeCategories) {
    const auto seconds = [&category](auto& of) { return ValueOf(of.run.time, category); };
    if (std::ranges::all_of(runs, [&](const auto* run) { return seconds(*run) == 0; })) continue;
    columns.push_back({category.title, [seconds](auto& of) {
                         return seconds(of) > 0 ? FormatDuration(seconds(of)) : "-";
                       }});
  }
  return TableOf("time of a step: median, and its parts as means over steps and ranks", runs,
                 columns);
}

// Adds the table of memory, and a note where some class of memory is not predicted, with the
// reason.
void AddMemory(const Runs& runs, std::vector<Section::Item>& items) {
  std::vector<RunColumn> columns = {{"peak", [](auto& of) { return Bytes(of.run.memory_peak); }}};
  std::vector<std::string> not_predicted;
  for (const Category& category : kMemoryCategories) {
    bool any = false, any_predicted = false;
    for (const ComparedRun* compared : runs) {
      const auto cost = compared->run.memory.find(category.name);
      if (cost == compared->run.memory.end()) continue;
      any |= cost->second.measured > 0;
      any_predicted |= cost->second.predicted.has_value();
    }
    if (!any) continue;
    if (!any_predicted) not_predicted.push_back(category.title);
    columns.push_back({category.title, [&category](auto& of) {
                         return MeasuredAndPredicted(of.run.memory, category.name, Bytes);
                       }});
  }
  items.push_back(TableOf(
      "memory of a rank, most of any: all at once, and each class at its own peak, measured / "
      "predicted",
      runs, columns));
  if (not_predicted.empty()) return;
  items.push_back(Paragraph{
      absl::StrCat("measured only: ", absl::StrJoin(not_predicted, ", "),
                   "; no rehearsal of the run says what these come to, as where kernels are a "
                   "GPU's"),
      Paragraph::Tone::kNote});
}

// No rows where no run sends anything.
Table TrafficTable(const Runs& runs) {
  std::set<std::string> operations;
  for (const ComparedRun* compared : runs) {
    for (const auto& entry : SentByOperation(compared->run)) operations.insert(entry.first);
  }
  if (operations.empty()) return {};
  std::vector<RunColumn> columns;
  for (const std::string& operation : operations) {
    columns.push_back({operation, [operation](auto& of) {
                         return MeasuredAndPredicted(SentByOperation(of.run), operation, InGroups);
                       }});
  }
  return TableOf("bytes that a rank sends in a step, most of any: measured / predicted", runs,
                 columns);
}

}  // namespace

std::string LossScaleLine(const RunRecord& run) {
  const std::vector<double>& scales = run.loss_scales;
  if (scales.empty()) return "";
  const auto [lowest, highest] = std::ranges::minmax_element(scales);
  std::string line = absl::StrFormat("%g %s %g", scales.front(),
                                     BlocksOf(scales, *lowest, *highest), scales.back());
  if (*lowest < *highest) {
    absl::StrAppendFormat(&line, ", lowest %g, highest %g", *lowest, *highest);
  }
  std::vector<int64_t> skipped = run.skipped_steps;
  absl::StrAppend(&line, "; skipped ", skipped.size(), skipped.size() == 1 ? " step" : " steps");
  if (skipped.empty()) return line;
  const bool all = skipped.size() <= kNamedSteps;
  if (!all) skipped.resize(kNamedSteps);
  absl::StrAppend(&line, ": ", absl::StrJoin(skipped, ", "), all ? "" : ", ...");
  return line;
}

std::vector<Section::Item> LostRanks(const ComparedWorkload& workload) {
  Table table = {.title = "Ranks that were lost",
                 .columns = {{"strategy", kLeft},
                             {"when", kLeft},
                             {"what", kLeft},
                             {"went on from step"},
                             {"as", kLeft},
                             {"next step after"}}};
  std::vector<std::string> curves;
  for (const ComparedRun& compared : workload.runs) {
    for (const Restart& restart : compared.run.restarts) {
      table.Add({compared.label, restart.time, restart.cause,
                 absl::StrCat(restart.steps,
                              restart.state.empty() ? "" : absl::StrCat(", ", restart.state)),
                 restart.formation, restart.went_on() ? FormatDuration(restart.seconds) : "none"});
    }
    if (compared.run.restarts.empty() || !compared.curve) continue;
    const bool is_same = !compared.curve->largest && compared.same_length;
    curves.push_back(absl::StrCat(
        compared.label, is_same ? " has each loss of its reference, to the bit"
                                : " has not all losses of its reference: see the table above"));
  }
  if (table.rows.empty()) return {};
  std::vector<Section::Item> items = {std::move(table)};
  if (!curves.empty()) {
    items.push_back(Paragraph{absl::StrJoin(curves, "; "), Paragraph::Tone::kNote});
  }
  return items;
}

std::vector<Section::Item> ChangesOfMesh(const ComparedWorkload& workload) {
  Table table = {.title = "Changes of mesh",
                 .columns = {{"strategy", kLeft},
                             {"behind step"},
                             {"from", kLeft},
                             {"to", kLeft},
                             {"took"},
                             {"sent by all ranks"}}};
  for (const ComparedRun& compared : workload.runs) {
    for (const RunRecord::MeshChange& change : compared.run.changes_of_mesh) {
      table.Add({compared.label, absl::StrCat(change.steps), ShortFormation(change.from),
                 ShortFormation(change.to), FormatDuration(change.seconds),
                 FormatBytes(change.sent_bytes)});
    }
  }
  if (table.rows.empty()) return {};
  return {std::move(table)};
}

std::vector<Section::Item> SlowRanks(const ComparedWorkload& workload) {
  Table table = {.title = "Ranks that were slower than others with the same work",
                 .columns = {{"strategy", kLeft},
                             {"rank"},
                             {"times"},
                             {"slowest at step"},
                             {"of the others' time"},
                             {"longer by"},
                             {"most of it in", kLeft}}};
  for (const ComparedRun& compared : workload.runs) {
    for (const RunRecord::SlowRank& slow : compared.run.slow_ranks) {
      table.Add({compared.label, absl::StrCat(slow.rank), absl::StrCat(slow.windows),
                 absl::StrCat(slow.step + 1), absl::StrFormat("%.1f x", slow.factor),
                 FormatDuration(slow.seconds), slow.part});
    }
  }
  if (table.rows.empty()) return {};
  return {std::move(table)};
}

std::vector<Section::Item> ComparisonTables(const ComparedWorkload& workload) {
  Runs runs, scaled;
  bool any_frozen = false;
  for (const ComparedRun& compared : workload.runs) {
    if (!compared.run.complete()) continue;
    runs.push_back(&compared);
    if (!compared.run.loss_scales.empty()) scaled.push_back(&compared);
    any_frozen |= compared.run.trained_parameters < compared.run.parameters;
  }
  std::vector<Section::Item> items;
  if (runs.empty()) return items;
  items.push_back(ResultTable(runs));
  if (any_frozen) items.push_back(TrainedTable(runs));
  items.push_back(TimeTable(runs));
  AddMemory(runs, items);
  if (Table traffic = TrafficTable(runs); !traffic.rows.empty()) items.push_back(traffic);
  if (!scaled.empty()) {
    items.push_back(TableOf(
        "", scaled,
        {{"loss scale over the steps", [](auto& of) { return LossScaleLine(of.run); }, kLeft}}));
  }
  return items;
}

}  // namespace lockstep
