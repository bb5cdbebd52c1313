#include "tools/compare/report.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/compare/charts.h"
#include "tools/compare/tables.h"

namespace lockstep {
namespace {

constexpr size_t kNamedKeys = 12;

std::string NameOf(const ComparedWorkload& workload) {
  return workload.workload.empty() ? "unknown workload" : workload.workload;
}

// For ids of charts and names of files: letters, digits and _.
std::string Plain(std::string name) {
  for (char& letter : name) {
    if (!absl::ascii_isalnum(letter)) letter = '_';
  }
  return name;
}

// What the ids of a workload's charts begin with. Names of two workloads may read alike ("a b" and
// "a_b"): those behind the first have their number.
std::string IdOf(const ComparedWorkload& workload, size_t index) {
  return absl::StrCat(Plain(NameOf(workload)), index == 0 ? "" : absl::StrCat("-", index));
}

// "model.width (3, not 4), train.steps (8, not 9)"
std::string List(std::vector<Config::Difference> differences) {
  const bool all = differences.size() <= kNamedKeys;
  if (!all) differences.resize(kNamedKeys);
  const auto value = [](const std::string& text) { return text.empty() ? "none" : text; };
  std::vector<std::string> listed;
  for (const Config::Difference& difference : differences) {
    listed.push_back(absl::StrCat(difference.key, " (", value(difference.ours), ", not ",
                                  value(difference.theirs), ")"));
  }
  return absl::StrJoin(listed, ", ") + (all ? "" : ", ...");
}

void AddNotes(const ComparedWorkload& workload, Section& section) {
  for (const ComparedRun& compared : workload.runs) {
    const RunRecord& run = compared.run;
    std::string note;
    if (!run.complete()) {
      note = absl::StrCat(compared.label, ": FAILED, ", run.problem, " (", run.directory, ")");
    } else if (!compared.differences_of_config.empty()) {
      note = absl::StrCat(compared.label, " differs from its reference in ",
                          List(compared.differences_of_config), ": their curves need not agree");
    }
    if (!note.empty()) section.items.push_back(Paragraph{note, Paragraph::Tone::kWarning});
    if (compared.parts() && !compared.differences_of_run.empty()) {
      section.items.push_back(Paragraph{
          absl::StrCat(compared.label, " parts from its reference, and was run with other ",
                       List(compared.differences_of_run), ", which should move no curve"),
          Paragraph::Tone::kWarning});
    }
    if (run.complete() && !run.legs.empty()) {
      section.items.push_back(Paragraph{
          absl::StrCat(compared.label, ": its ranks, times, memory and traffic are those of its ",
                       "last leg, ", ShortFormation(absl::StrCat(run.strategy, " ", run.mesh))),
          Paragraph::Tone::kNote});
    }
    if (run.complete() && run.is_warm_up) {
      section.items.push_back(
          Paragraph{absl::StrCat(compared.label,
                                 ": its times are of the first steps, which warm up; a run "
                                 "of three steps or more measures those behind them"),
                    Paragraph::Tone::kWarning});
    }
  }
}

Section SectionOf(const ComparedWorkload& workload, const std::string& id) {
  Section section = {.title = NameOf(workload), .items = ComparisonTables(workload)};
  AddNotes(workload, section);
  for (Section::Item& item : LostRanks(workload)) section.items.push_back(std::move(item));
  for (Section::Item& item : ChangesOfMesh(workload)) section.items.push_back(std::move(item));
  for (Section::Item& item : SlowRanks(workload)) section.items.push_back(std::move(item));
  for (Chart& chart : ComparisonCharts(workload, id)) section.items.push_back(std::move(chart));
  return section;
}

// One step of each run.
Section StepsOf(const ComparedWorkload& workload, const std::string& id_of_workload) {
  Section section = {.title = absl::StrCat(NameOf(workload), ", a step of each run"), .items = {}};
  for (size_t i = 0; i < workload.runs.size(); ++i) {
    if (!workload.runs[i].run.complete()) continue;  // a trace there would be an earlier run's
    const std::string id = absl::StrCat(id_of_workload, "-", i, "-", Plain(workload.runs[i].label));
    for (Chart& chart : StepCharts(workload.runs[i], id)) {
      section.items.push_back(std::move(chart));
    }
  }
  return section;
}

Paragraph SetApart(const ComparedWorkload& workload, const ComparedWorkload& first) {
  return {absl::StrCat(workload.workload, " is not compared with ", first.workload,
                       ", from which it differs in ",
                       List(workload.runs[0].run.config.Differences(first.runs[0].run.config))),
          Paragraph::Tone::kWarning};
}

}  // namespace

Report ComparisonReport(const std::vector<ComparedWorkload>& workloads) {
  Report report = {.title = "Strategies side by side", .sections = {}};
  const ComparedWorkload* first = nullptr;  // of those that tell what they are
  for (size_t i = 0; i < workloads.size(); ++i) {
    const ComparedWorkload& workload = workloads[i];
    const std::string id = IdOf(workload, i);
    Section section = SectionOf(workload, id);
    if (first != nullptr && !workload.workload.empty()) {
      section.items.insert(section.items.begin(), SetApart(workload, *first));
    }
    if (first == nullptr && !workload.workload.empty()) first = &workload;
    report.sections.push_back(std::move(section));
    Section steps = StepsOf(workload, id);
    if (!steps.items.empty()) report.sections.push_back(std::move(steps));
  }
  return report;
}

}  // namespace lockstep
