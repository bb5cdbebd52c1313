#include "tools/compare/tables.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/clock.h"
#include "tools/compare/costs.h"

namespace lockstep {
namespace {

constexpr Table::Align kLeft = Table::Align::kLeft;

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
std::string DifferenceTitle(const std::vector<const ComparedRun*>& runs) {
  std::set<std::string> references;
  for (const ComparedRun* compared : runs) {
    if (compared->is_reference) references.insert(compared->run.strategy);
  }
  if (references.empty()) references.insert("single");
  return "loss against " + absl::StrJoin(references, " or ");
}

std::vector<const ComparedRun*> CompleteRuns(const ComparedWorkload& workload) {
  std::vector<const ComparedRun*> runs;
  for (const ComparedRun& compared : workload.runs) {
    if (compared.run.complete()) runs.push_back(&compared);
  }
  return runs;
}

// "4.0 MiB / 3.9 MiB"; of what is not predicted the first alone.
std::string MeasuredAndPredicted(const RunCost& cost) {
  const std::string measured = FormatBytes(std::llround(cost.measured));
  return cost.predicted ? absl::StrCat(measured, " / ", FormatBytes(std::llround(*cost.predicted)))
                        : measured;
}

// The classes of which some run has memory; or only those that no run predicts.
enum class Classes { kAll, kNotPredicted };
std::vector<const MemoryCategory*> MemoryClasses(const std::vector<const ComparedRun*>& runs,
                                                 Classes which) {
  std::vector<const MemoryCategory*> classes;
  for (const MemoryCategory& category : kMemoryCategories) {
    bool any = false, any_predicted = false;
    for (const ComparedRun* compared : runs) {
      const auto cost = compared->run.memory.find(category.name);
      if (cost == compared->run.memory.end()) continue;
      any |= cost->second.measured > 0;
      any_predicted |= cost->second.predicted.has_value();
    }
    if (any && !(which == Classes::kNotPredicted && any_predicted)) classes.push_back(&category);
  }
  return classes;
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

}  // namespace

Table ResultTable(const ComparedWorkload& workload) {
  const std::vector<const ComparedRun*> runs = CompleteRuns(workload);
  Table table = {.columns = {{"strategy", kLeft},
                             {"ranks"},
                             {"mesh", kLeft},
                             {"shards x micro"},
                             {"steps"},
                             {"final loss"},
                             {DifferenceTitle(runs)},
                             {"validation loss", kLeft}}};
  const bool any_start = std::ranges::any_of(runs, [](const ComparedRun* compared) {
    return compared->run.validation_at_start.has_value();
  });
  if (any_start) table.columns.push_back({"at the start", kLeft});
  for (const ComparedRun* compared : runs) {
    const RunRecord& run = compared->run;
    std::vector<std::string> cells = {compared->label,
                                      absl::StrCat(run.ranks),
                                      run.ranks == 1 ? "-" : ShortMesh(run.mesh),
                                      absl::StrFormat("%d x %d", run.shards, run.micro_batches),
                                      absl::StrCat(run.steps),
                                      absl::StrFormat("%.6f", run.loss),
                                      Difference(*compared),
                                      Validation(run)};
    if (any_start) cells.push_back(ValidationAtStart(run));
    table.Add(std::move(cells));
  }
  return table;
}

Table TrainedTable(const ComparedWorkload& workload) {
  const std::vector<const ComparedRun*> runs = CompleteRuns(workload);
  Table table = {
      .title = "what is trained, and what is kept of it",
      .columns = {{"strategy", kLeft}, {"parameters"}, {"trained"}, {"of all"}, {"checkpoint"}}};
  const bool any_frozen = std::ranges::any_of(runs, [](const ComparedRun* compared) {
    return compared->run.trained_parameters < compared->run.parameters;
  });
  if (!any_frozen) return table;
  for (const ComparedRun* compared : runs) {
    const RunRecord& run = compared->run;
    table.Add({compared->label, InGroups(static_cast<double>(run.parameters)),
               InGroups(static_cast<double>(run.trained_parameters)),
               absl::StrFormat("%.2f %%", 100 * static_cast<double>(run.trained_parameters) /
                                              static_cast<double>(run.parameters)),
               run.checkpoint_bytes > 0 ? FormatBytes(run.checkpoint_bytes) : "-"});
  }
  return table;
}

Table TimeTable(const ComparedWorkload& workload) {
  const std::vector<const ComparedRun*> runs = CompleteRuns(workload);
  Table table = {.title = "time of a step: median, and its parts as means over steps and ranks"};
  table.columns = {
      {"strategy", kLeft}, {runs.empty() ? "throughput" : runs[0]->run.unit + "/s"}, {"step"}};
  std::vector<const TimeCategory*> categories;
  for (const TimeCategory& category : kTimeCategories) {
    if (std::ranges::any_of(
            runs, [&](const auto* compared) { return Spent(compared->run, category) > 0; })) {
      categories.push_back(&category);
      table.columns.push_back({category.title});
    }
  }
  for (const ComparedRun* compared : runs) {
    const RunRecord& run = compared->run;
    std::vector<std::string> cells = {compared->label,
                                      FormatCount(std::llround(run.units_per_second)),
                                      FormatDuration(run.step_seconds)};
    for (const TimeCategory* category : categories) {
      const double seconds = Spent(run, *category);
      cells.push_back(seconds > 0 ? FormatDuration(seconds) : "-");
    }
    table.Add(std::move(cells));
  }
  return table;
}

Table MemoryTable(const ComparedWorkload& workload) {
  const std::vector<const ComparedRun*> runs = CompleteRuns(workload);
  Table table = {.title =
                     "memory of a rank, most of any: all at once, and each class at its own "
                     "peak, measured / predicted",
                 .columns = {{"strategy", kLeft}, {"peak"}}};
  const std::vector<const MemoryCategory*> classes = MemoryClasses(runs, Classes::kAll);
  for (const MemoryCategory* category : classes) table.columns.push_back({category->title});
  for (const ComparedRun* compared : runs) {
    const RunRecord& run = compared->run;
    std::vector<std::string> cells = {compared->label, FormatBytes(std::llround(run.memory_peak))};
    for (const MemoryCategory* category : classes) {
      const auto cost = run.memory.find(category->name);
      cells.push_back(cost == run.memory.end() ? "-" : MeasuredAndPredicted(cost->second));
    }
    table.Add(std::move(cells));
  }
  return table;
}

std::string WhyNotPredicted(const ComparedWorkload& workload) {
  std::vector<std::string> titles;
  for (const MemoryCategory* category :
       MemoryClasses(CompleteRuns(workload), Classes::kNotPredicted)) {
    titles.push_back(category->title);
  }
  if (titles.empty()) return "";
  return absl::StrCat(
      "measured only: ", absl::StrJoin(titles, ", "),
      "; no rehearsal of the run says what these come to, as where kernels are a GPU's");
}

Table TrafficTable(const ComparedWorkload& workload) {
  const std::vector<const ComparedRun*> runs = CompleteRuns(workload);
  std::map<const ComparedRun*, std::map<std::string, RunCost>> sent;
  std::set<std::string> operations;
  for (const ComparedRun* compared : runs) {
    sent[compared] = SentByOperation(compared->run);
    for (const auto& entry : sent[compared]) operations.insert(entry.first);
  }
  Table table = {.title = "bytes that a rank sends in a step, most of any: measured / predicted",
                 .columns = {{"strategy", kLeft}}};
  if (operations.empty()) return table;
  for (const std::string& operation : operations) table.columns.push_back({operation});
  for (const ComparedRun* compared : runs) {
    std::vector<std::string> cells = {compared->label};
    for (const std::string& operation : operations) {
      const auto cost = sent[compared].find(operation);
      cells.push_back(cost == sent[compared].end()
                          ? "-"
                          : absl::StrCat(InGroups(cost->second.measured), " / ",
                                         InGroups(*cost->second.predicted)));
    }
    table.Add(std::move(cells));
  }
  return table;
}

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

Table LossScaleTable(const ComparedWorkload& workload) {
  Table table = {.columns = {{"strategy", kLeft}, {"loss scale over the steps", kLeft}}};
  for (const ComparedRun* compared : CompleteRuns(workload)) {
    const std::string line = LossScaleLine(compared->run);
    if (!line.empty()) table.Add({compared->label, line});
  }
  return table;
}

}  // namespace lockstep
