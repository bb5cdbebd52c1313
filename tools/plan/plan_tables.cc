#include "tools/plan/plan_tables.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/clock.h"

namespace lockstep {
namespace {

std::string Percent(double fraction) { return absl::StrFormat("%.1f %%", 100 * fraction); }

std::string Bytes(double bytes) { return FormatBytes(static_cast<int64_t>(bytes)); }

double Exposed(const RankEstimate& rank) {
  double sum = 0;
  for (const auto& [label, seconds] : rank.exposed) sum += seconds;
  return sum;
}

// The first `rows` of those that are not refused.
std::vector<const Forecast*> Ranked(const std::vector<Forecast>& runs, size_t rows) {
  std::vector<const Forecast*> ranked;
  for (const Forecast& run : runs) {
    if (run.refused.ok() && ranked.size() < rows) ranked.push_back(&run);
  }
  return ranked;
}

// The rank that computes most: the others wait for it.
const RankEstimate& BusiestRank(const StepEstimate& estimate) {
  return *std::ranges::max_element(estimate.ranks, {}, &RankEstimate::compute);
}

// What something of a run consists of, by name.
using Parts = std::vector<std::pair<std::string, double>>;

// A line for each run, and a column for each part that is above 0 in any of them.
Table PartsTable(const std::string& title, const std::vector<const Forecast*>& runs,
                 Parts (*parts_of)(const Forecast& run), std::string (*show)(double part)) {
  Table table = {.title = title, .columns = {{"mesh", Table::Align::kLeft}}};
  std::vector<std::map<std::string, double>> parts;
  std::vector<std::string> names;  // as runs have them
  for (const Forecast* run : runs) {
    std::map<std::string, double>& of_run = parts.emplace_back();
    for (const auto& [name, part] : parts_of(*run)) {
      of_run[name] = part;
      if (part > 0 && std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  for (const std::string& name : names) table.columns.push_back({name});
  for (size_t i = 0; i < runs.size(); ++i) {
    std::vector<std::string> cells = {runs[i]->candidate.ToString()};
    for (const std::string& name : names) cells.push_back(show(parts[i][name]));
    table.Add(std::move(cells));
  }
  return table;
}

}  // namespace

Table RunsTable(const std::vector<Forecast>& runs, size_t rows) {
  const std::string unit = runs.empty() ? "units" : runs.front().unit;
  Table table = {.columns = {{"mesh", Table::Align::kLeft},
                             {"step"},
                             {unit + "/s"},
                             {"MFU"},
                             {"memory"},
                             {"fits"},
                             {"exposed communication"},
                             {"bubble"}}};
  for (const Forecast* run : Ranked(runs, rows)) {
    const RankEstimate& rank = BusiestRank(run->estimate);
    table.Add({run->candidate.ToString(), FormatDuration(run->seconds),
               FormatCount(std::llround(run->units_per_second)), Percent(run->mfu),
               Bytes(run->memory.total), run->fits ? "yes" : "no",
               Percent(Exposed(rank) / run->seconds), Percent(rank.bubble / run->seconds)});
  }
  return table;
}

Table RunsMemoryTable(const std::vector<Forecast>& runs, size_t rows) {
  return PartsTable(
      "memory of the fullest rank, by class", Ranked(runs, rows),
      [](const Forecast& run) { return run.memory.classes; }, Bytes);
}

Table RunsCommunicationTable(const std::vector<Forecast>& runs, size_t rows) {
  return PartsTable(
      "exposed communication of the rank that computes most, by kind", Ranked(runs, rows),
      [](const Forecast& run) {
        Parts shares;
        for (const auto& [label, seconds] : BusiestRank(run.estimate).exposed) {
          shares.emplace_back(label, seconds / run.seconds);
        }
        return shares;
      },
      Percent);
}

Table RefusedTable(const std::vector<Forecast>& runs) {
  Table table = {
      .title = "refused",
      .columns = {{"runs"}, {"such as", Table::Align::kLeft}, {"because", Table::Align::kLeft}}};
  struct Reason {
    int64_t runs = 0;
    std::string first;
  };
  std::map<std::string, Reason> reasons;
  for (const Forecast& run : runs) {
    if (run.refused.ok()) continue;
    Reason& reason = reasons[std::string(run.refused.message())];
    const std::string name = run.candidate.ToString();
    // In whatever order the runs were planned.
    if (reason.runs++ == 0 || name < reason.first) reason.first = name;
  }
  for (const auto& [message, reason] : reasons) {
    table.Add({absl::StrCat(reason.runs), reason.first, message});
  }
  return table;
}

Table BestTable(const std::vector<PlannedScenario>& scenarios, double budget) {
  const std::string unit = UnitOf(scenarios);
  Table table = {.columns = {{"cluster", Table::Align::kLeft},
                             {"ranks"},
                             {"batch"},
                             {"best mesh", Table::Align::kLeft},
                             {"step"},
                             {unit + "/s"},
                             {"a device"},
                             {"MFU"},
                             {"memory"},
                             {"device-hours for 1e9 " + unit}}};
  if (budget > 0) {
    table.columns.push_back({"time for the budget"});
    table.columns.push_back({"device-hours"});
  }
  for (const PlannedScenario& planned : scenarios) {
    const Scenario& scenario = planned.scenario;
    const std::string batch =
        scenario.batch_factor == 1 ? "" : absl::StrCat("x ", scenario.batch_factor);
    const Forecast* best = planned.best();
    if (best == nullptr || !best->fits) {
      table.Add({scenario.cluster, absl::StrCat(scenario.ranks), batch,
                 best == nullptr ? "none is possible" : "none fits"});
      continue;
    }
    const auto ranks = static_cast<double>(scenario.ranks);
    const double device_hours = ranks / 3600;  // in a second
    std::vector<std::string> cells = {
        scenario.cluster,
        absl::StrCat(scenario.ranks),
        batch,
        best->candidate.ToString(),
        FormatDuration(best->seconds),
        FormatCount(std::llround(best->units_per_second)),
        FormatCount(std::llround(best->units_per_second / ranks)),
        Percent(best->mfu),
        Bytes(best->memory.total),
        absl::StrFormat("%.4g", 1e9 / best->units_per_second * device_hours)};
    if (budget > 0) {
      const double seconds = budget / best->flops * best->seconds;
      cells.push_back(FormatDuration(seconds));
      cells.push_back(absl::StrFormat("%.4g", seconds * device_hours));
    }
    table.Add(std::move(cells));
  }
  return table;
}

Table RanksTable(const Forecast& run) {
  std::set<std::string> labels;
  for (const RankEstimate& rank : run.estimate.ranks) {
    for (const auto& [label, seconds] : rank.exposed) {
      if (seconds > 0) labels.insert(label);
    }
  }
  Table table = {.title = "where the time of a step goes",
                 .columns = {{"rank along pp"}, {"compute"}, {"optimizer"}, {"bubble"}}};
  for (const std::string& label : labels) table.columns.push_back({label});
  for (size_t pp = 0; pp < run.estimate.ranks.size(); ++pp) {
    const RankEstimate& rank = run.estimate.ranks[pp];
    std::vector<std::string> cells = {absl::StrCat(pp), Percent(rank.compute / run.seconds),
                                      Percent(rank.optimizer / run.seconds),
                                      Percent(rank.bubble / run.seconds)};
    for (const std::string& label : labels) {
      const auto exposed = rank.exposed.find(label);
      cells.push_back(Percent(exposed == rank.exposed.end() ? 0 : exposed->second / run.seconds));
    }
    table.Add(std::move(cells));
  }
  return table;
}

Table MemoryTable(const Forecast& run) {
  Table table = {.title = absl::StrCat("memory of the fullest rank, ", run.fullest, " along pp"),
                 .columns = {{"class", Table::Align::kLeft}, {"peak"}}};
  for (const auto& [name, bytes] : run.memory.classes) {
    if (bytes > 0) table.Add({name, Bytes(bytes)});
  }
  table.Add({"all together", Bytes(run.memory.total)});
  return table;
}

Table FasterTable(const Explanation& explanation) {
  Table table = {.title = "what limits the step: its time if one resource were twice as good",
                 .columns = {{"resource", Table::Align::kLeft}, {"step"}, {"of the time"}}};
  for (const FasterResource& resource : explanation.faster) {
    table.Add({resource.name, FormatDuration(resource.seconds),
               Percent(resource.seconds / explanation.forecast.seconds)});
  }
  return table;
}

Table ChangesTable(const Forecast& run, const std::vector<Forecast>& changed) {
  Table table = {
      .title = "with one option changed",
      .columns = {{"run", Table::Align::kLeft}, {"step"}, {"of the time"}, {"memory"}, {"fits"}}};
  for (const Forecast& other : changed) {
    if (!other.refused.ok()) continue;
    table.Add({other.candidate.ToString(), FormatDuration(other.seconds),
               Percent(other.seconds / run.seconds), Bytes(other.memory.total),
               other.fits ? "yes" : "no"});
  }
  return table;
}

Paragraph WayToFit(const Forecast& run, const Forecast* fitting, Changes changes) {
  if (fitting == nullptr) {
    return {.text = absl::StrCat(
                "It fits with none of the other options that were tried: it needs more ranks along "
                "pp or tp",
                run.candidate.micro_batch > 1 ? ", or smaller micro-batches." : "."),
            .tone = Paragraph::Tone::kWarning};
  }
  return {
      .text = absl::StrCat(
          changes == Changes::kOne ? "One option makes it fit: " : "Several options make it fit: ",
          fitting->candidate.ToString(), " takes ", FormatDuration(fitting->seconds), " and ",
          Bytes(fitting->memory.total), "."),
      .tone = Paragraph::Tone::kPlain};
}

std::vector<Paragraph> Verdict(const Explanation& explanation, double room) {
  const Forecast& run = explanation.forecast;
  const RankEstimate& rank = BusiestRank(run.estimate);
  std::vector<Paragraph> paragraphs;
  std::string text = absl::StrCat(
      "A step takes ", FormatDuration(run.seconds), ". The rank that computes most spends ",
      Percent(rank.compute / run.seconds), " of it on that, ", Percent(Exposed(rank) / run.seconds),
      " on communication that nothing hides, ", Percent(rank.bubble / run.seconds),
      " waiting for other stages and ", Percent(rank.optimizer / run.seconds),
      " on the optimizer.");
  if (!explanation.faster.empty()) {
    const FasterResource& most = explanation.faster.front();
    if (most.seconds < run.seconds) {
      absl::StrAppend(&text, " It is limited most by the ", most.name, ": if that were twice as ",
                      "good, the step would take ", FormatDuration(most.seconds), ".");
    }
  }
  paragraphs.push_back({.text = std::move(text), .tone = Paragraph::Tone::kPlain});
  const double spare = room - run.memory.total;
  const auto largest =
      std::ranges::max_element(run.memory.classes, {}, &std::pair<std::string, double>::second);
  paragraphs.push_back(
      {.text = spare >= 0
                   ? absl::StrCat("It fits: ", Bytes(spare), " of ", Bytes(room), " stay free.")
                   : absl::StrCat("It does not fit: it needs ", Bytes(-spare), " more than the ",
                                  Bytes(room), " of a device. Most of it, ", Bytes(largest->second),
                                  ", is ", largest->first, "."),
       .tone = spare >= 0 ? Paragraph::Tone::kPlain : Paragraph::Tone::kWarning});
  return paragraphs;
}

}  // namespace lockstep
