#include "tools/compare/report.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/clock.h"
#include "tools/compare/loss_scale_line.h"
#include "tools/compare/text_table.h"

namespace lockstep {
namespace {

using Align = TextTable::Align;

// "pp=1,dp=2,tp=1" without the axes of size 1; "-" for a single rank.
std::string ShortMesh(const std::string& mesh) {
  std::vector<std::string> axes = absl::StrSplit(mesh, ',', absl::SkipEmpty());
  std::erase_if(axes, [](const std::string& axis) { return axis.ends_with("=1"); });
  return axes.empty() ? "-" : absl::StrJoin(axes, " ");
}

// A whole number of bytes, in groups of three digits: a byte too many is to be seen.
std::string ExactBytes(double bytes) {
  std::string digits = absl::StrFormat("%.0f", bytes);
  for (int place = static_cast<int>(digits.size()) - 3; place > 0; place -= 3) {
    digits.insert(place, ",");
  }
  return digits;
}

std::string Difference(const ComparedRun& compared) {
  if (compared.is_reference) return "reference";
  if (!compared.curve) {
    const RunRecord& run = compared.run;
    return absl::StrFormat("no single of %d x %d", run.shards, run.micro_batches) +
           (run.shard_groups > 1 ? absl::StrFormat(" in %d groups", run.shard_groups) : "");
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

std::string Validation(const RunRecord& run) {
  if (run.unit == "samples") {
    return absl::StrFormat("%.4f, accuracy %.2f %%", run.validation_loss,
                           100 * run.validation_accuracy);
  }
  return run.loss_floor ? absl::StrFormat("%.4f, floor %.4f", run.validation_loss, *run.loss_floor)
                        : absl::StrFormat("%.4f", run.validation_loss);
}

std::string ResultTable(const ComparedWorkload& workload) {
  TextTable table({{"strategy", Align::kLeft},
                   {"ranks"},
                   {"mesh", Align::kLeft},
                   {"shards x micro"},
                   {"steps"},
                   {"final loss"},
                   {"loss against single"},
                   {"validation loss", Align::kLeft}});
  for (const ComparedRun& compared : workload.runs) {
    const RunRecord& run = compared.run;
    if (!run.complete()) continue;
    table.Add({compared.label, absl::StrCat(run.ranks), ShortMesh(run.mesh),
               absl::StrFormat("%d x %d", run.shards, run.micro_batches), absl::StrCat(run.steps),
               absl::StrFormat("%.6f", run.loss), Difference(compared), Validation(run)});
  }
  return table.ToString();
}

// Name in the summary, title. All but the hidden communication, which happened beside the others,
// add up to the step.
constexpr std::pair<const char*, const char*> kPhaseColumns[] = {
    {"forward", "forward"},     {"backward", "backward"},
    {"optimizer", "optimizer"}, {"communication_exposed", "comm."},
    {"data", "data"},           {"bubble", "bubble"},
    {"other", "other"},         {"communication_overlapped", "hidden comm."}};

// Seconds that a run spent in a phase; 0 where it knows no such phase.
double Spent(const RunRecord& run, const char* phase) {
  const auto found = run.time.find(phase);
  return found == run.time.end() ? 0 : found->second;
}

std::string TimeTable(const ComparedWorkload& workload) {
  std::vector<const ComparedRun*> runs;
  for (const ComparedRun& compared : workload.runs) {
    if (compared.run.complete()) runs.push_back(&compared);
  }
  std::vector<TextTable::Column> columns = {
      {"strategy", Align::kLeft}, {runs[0]->run.unit + "/s"}, {"step"}};
  // Phases that no run has, such as the bubble where there is no pipeline, are left out.
  std::vector<const char*> phases;
  for (const auto& [phase, title] : kPhaseColumns) {
    if (std::all_of(runs.begin(), runs.end(), [phase = phase](const auto* compared) {
          return Spent(compared->run, phase) == 0;
        })) {
      continue;
    }
    phases.push_back(phase);
    columns.push_back({title});
  }
  TextTable table(std::move(columns));
  for (const ComparedRun* compared : runs) {
    const RunRecord& run = compared->run;
    std::vector<std::string> cells = {compared->label,
                                      FormatCount(std::llround(run.units_per_second)),
                                      FormatDuration(run.step_seconds)};
    for (const char* phase : phases) {
      const double seconds = Spent(run, phase);
      cells.push_back(seconds > 0 ? FormatDuration(seconds) : "-");
    }
    table.Add(std::move(cells));
  }
  return table.ToString();
}

// Sums over what the theory predicts.
RunCost Predicted(const std::map<std::string, RunCost>& costs) {
  RunCost total = {.predicted = 0, .measured = 0};
  for (const auto& [name, cost] : costs) {
    if (!cost.predicted) continue;
    *total.predicted += *cost.predicted;
    total.measured += cost.measured;
  }
  return total;
}

std::string CostTable(const ComparedWorkload& workload) {
  TextTable table({{"strategy", Align::kLeft},
                   {"peak memory"},
                   {"model state"},
                   {"predicted"},
                   {"activations"},
                   {"bytes sent a step"},
                   {"predicted"}});
  for (const ComparedRun& compared : workload.runs) {
    const RunRecord& run = compared.run;
    if (!run.complete()) continue;
    const RunCost state = Predicted(run.memory);
    double sent = 0;
    for (const auto& [name, cost] : run.traffic) sent += cost.measured;
    const auto activations = run.memory.find("activations");
    table.Add(
        {compared.label, FormatBytes(std::llround(run.memory_peak)),
         FormatBytes(std::llround(state.measured)), FormatBytes(std::llround(*state.predicted)),
         activations == run.memory.end() ? "-"
                                         : FormatBytes(std::llround(activations->second.measured)),
         ExactBytes(sent), ExactBytes(*Predicted(run.traffic).predicted)});
  }
  return table.ToString();
}

std::string LossScales(const ComparedWorkload& workload) {
  TextTable table({{"strategy", Align::kLeft}, {"loss scale over the steps", Align::kLeft}});
  bool any = false;
  for (const ComparedRun& compared : workload.runs) {
    const std::string line = LossScaleLine(compared.run);
    if (line.empty()) continue;
    table.Add({compared.label, line});
    any = true;
  }
  return any ? "\n" + table.ToString() : "";
}

std::string Notes(const ComparedWorkload& workload) {
  std::string notes;
  for (const ComparedRun& compared : workload.runs) {
    const RunRecord& run = compared.run;
    if (!run.complete()) {
      absl::StrAppend(&notes, "  ", compared.label, ": FAILED, ", run.problem, " (", run.directory,
                      ")\n");
    } else if (!compared.differing_keys.empty()) {
      absl::StrAppend(&notes, "  ", compared.label, " and its reference differ in ",
                      absl::StrJoin(compared.differing_keys, ", "),
                      ": their curves need not agree\n");
    }
  }
  return notes;
}

}  // namespace

std::string TextReport(const std::vector<ComparedWorkload>& workloads) {
  std::string text;
  for (const ComparedWorkload& workload : workloads) {
    bool any_complete = false;
    for (const ComparedRun& compared : workload.runs) any_complete |= compared.run.complete();
    absl::StrAppend(&text, "\n", workload.workload.empty() ? "unknown workload" : workload.workload,
                    "\n");
    if (any_complete) {
      absl::StrAppend(&text, ResultTable(workload),
                      "\n  time of a step: median, and its parts as means over steps and ranks\n",
                      TimeTable(workload), "\n  a rank's memory and traffic, most of any rank\n",
                      CostTable(workload), LossScales(workload));
    }
    absl::StrAppend(&text, Notes(workload));
  }
  return text;
}

}  // namespace lockstep
