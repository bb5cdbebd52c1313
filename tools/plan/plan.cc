// Which mesh, on how many devices, at what cost:
//
//   ./bazelw run //tools/plan -- --workload experiments/gpt_wide/workload.toml --cluster h100
//       --ranks 1024

#include <unistd.h>  // isatty

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/clock.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "foresight/plan_cluster.h"
#include "foresight/quantity.h"
#include "foresight/shipped.h"
#include "models/models.h"
#include "tools/experiment/outputs.h"
#include "tools/experiment/paths.h"
#include "tools/plan/plan_charts.h"
#include "tools/plan/plan_tables.h"
#include "tools/plan/planner.h"
#include "tools/plan/questions.h"
#include "tools/plan/scenario.h"
#include "tools/plan/search.h"
#include "tools/report/text.h"
#include "tools/report/write_page.h"

ABSL_FLAG(std::string, workload, "", "the workload's configuration file, or a shipped workload");
ABSL_FLAG(lockstep::RepeatedFlag, set, {}, "key=value over the workload; may be repeated");
ABSL_FLAG(std::string, data, "", "folder of real data sets, if the workload needs one");
ABSL_FLAG(lockstep::RepeatedFlag, cluster, {},
          "a shipped cluster (h100, ...) or a file that describes one; may be repeated");
ABSL_FLAG(std::string, dialect, "lockstep", "a shipped dialect or a file: the framework that runs");
ABSL_FLAG(std::string, ranks, "",
          "devices to use: 1024, or a list such as 8,16,...,1024; empty: all of the cluster");
ABSL_FLAG(std::string, memory, "", "memory of a device that a run may use, such as 40GiB");
ABSL_FLAG(std::string, vary, "",
          "a number of the cluster and its values: network=100Gbit,400Gbit; also latency, link, "
          "memory, bandwidth, peak");
ABSL_FLAG(std::string, budget, "",
          "operations to spend, such as 1e21FLOP: how long it takes on the best mesh");
ABSL_FLAG(std::string, mesh, "",
          "plans this mesh alone, such as pp=8,dp=16,tp=8, in place of all; ranks follow from it");
ABSL_FLAG(
    std::string, explain, "",
    "says where time and memory go, and what limits them: a mesh (pp=8,dp=16,tp=8), a line of "
    "the table, or best");
ABSL_FLAG(int, rows, 20, "lines of the table");
ABSL_FLAG(std::string, write, "", "writes the configuration of the explained or best run here");
ABSL_FLAG(std::string, html, "", "writes a page with charts here");
ABSL_FLAG(bool, png, false,
          "the page to the end of its first section, and each chart, as pictures (by Chromium)");

namespace lockstep {
namespace {

// How many runs are planned: redrawn in place on a terminal, and else a line now and then.
class ProgressOfPlan {
 public:
  explicit ProgressOfPlan(std::string name) : name_(std::move(name)) {}
  ~ProgressOfPlan() {
    if (is_terminal_ && shown_ > begin_) std::fputc('\n', stderr);
  }

  void operator()(int64_t done, int64_t known) {
    const bool is_due = SecondsSince(shown_) >= (is_terminal_ ? 0.2 : 10);
    if (!is_due && !(is_terminal_ && done == known)) return;
    shown_ = NowNanos();
    std::fprintf(stderr, "%s%s: %lld of %lld runs planned, %s%s", is_terminal_ ? "\r" : "",
                 name_.c_str(), static_cast<long long>(done), static_cast<long long>(known),
                 FormatDuration(SecondsSince(begin_)).c_str(), is_terminal_ ? "" : "\n");
  }

 private:
  const std::string name_;
  const bool is_terminal_ = isatty(STDERR_FILENO) == 1;
  const int64_t begin_ = NowNanos();
  int64_t shown_ = begin_;
};

// What the flags ask for.
struct Question {
  Planner::Options options;  // of every planner, but for its cluster
  int64_t batch = 0;         // of the workload, if it is scaled
  std::vector<NamedCluster> clusters;
  std::vector<int64_t> ranks;  // empty: all of each cluster
  std::optional<MeshShape> mesh;
  double budget = 0;
};

absl::StatusOr<Question> ReadQuestion() {
  Question question;
  Planner::Options& options = question.options;
  const std::string workload = absl::GetFlag(FLAGS_workload);
  const std::vector<std::string> clusters = absl::GetFlag(FLAGS_cluster).values;
  if (workload.empty()) {
    return InvalidArgument("name a workload: --workload FILE, or a shipped one such as gpt3_175b");
  }
  if (clusters.empty()) {
    return InvalidArgument("name a cluster: --cluster FILE, or a shipped one such as h100");
  }
  options.workload.configs = {ShippedPath("tools/plan/workloads", workload)};
  options.workload.assignments = absl::GetFlag(FLAGS_set).values;
  options.workload.data = absl::GetFlag(FLAGS_data);
  options.make_model = MakeModel;
  LS_ASSIGN_OR_RETURN(options.dialect, Dialect::Read(ShippedPath("foresight/dialects",
                                                                 absl::GetFlag(FLAGS_dialect))));
  if (const std::string memory = absl::GetFlag(FLAGS_memory); !memory.empty()) {
    LS_ASSIGN_OR_RETURN(options.memory, ParseQuantity(memory, Dimension::kBytes));
  }
  if (const std::string budget = absl::GetFlag(FLAGS_budget); !budget.empty()) {
    LS_ASSIGN_OR_RETURN(question.budget, ParseQuantity(budget, Dimension::kFlops));
  }
  std::vector<std::string> names;
  for (const std::string& name : clusters) {
    NamedCluster cluster = {.name = name, .cluster = {}};
    LS_ASSIGN_OR_RETURN(cluster.cluster, ReadPlanCluster(ShippedPath("foresight/clusters", name)));
    if (absl::EndsWith(name, ".toml")) cluster.name = std::filesystem::path(name).stem();
    if (std::ranges::find(names, cluster.name) != names.end()) {
      return InvalidArgument("--cluster ", name, ": two clusters are called ", cluster.name,
                             "; give their files different names");
    }
    names.push_back(cluster.name);
    std::vector<NamedCluster> varied = {cluster};
    if (const std::string vary = absl::GetFlag(FLAGS_vary); !vary.empty()) {
      LS_ASSIGN_OR_RETURN(varied, Vary(cluster, vary));
    }
    question.clusters.insert(question.clusters.end(), varied.begin(), varied.end());
  }
  if (const std::string ranks = absl::GetFlag(FLAGS_ranks); !ranks.empty()) {
    LS_ASSIGN_OR_RETURN(question.ranks, ParseRanks(ranks));
  }
  if (const std::string mesh = absl::GetFlag(FLAGS_mesh); !mesh.empty()) {
    LS_ASSIGN_OR_RETURN(question.mesh, MeshShape::Parse(mesh));
    if (!question.ranks.empty()) {
      return InvalidArgument("--mesh says how many ranks there are; leave --ranks out");
    }
    question.ranks = {question.mesh->ranks()};
  }
  return question;
}

std::vector<Scenario> ScenariosOf(const Question& question) {
  std::vector<Scenario> scenarios;
  for (const NamedCluster& cluster : question.clusters) {
    if (question.ranks.empty()) {
      scenarios.push_back({.cluster = cluster.name, .ranks = cluster.cluster.devices()});
    }
    for (const int64_t ranks : question.ranks) {
      scenarios.push_back({.cluster = cluster.name, .ranks = ranks});
    }
    for (const int64_t ranks : question.ranks) {
      if (ranks % question.ranks.front() != 0 || ranks == question.ranks.front()) continue;
      scenarios.push_back({.cluster = cluster.name,
                           .ranks = ranks,
                           .batch_factor = ranks / question.ranks.front()});
    }
  }
  return scenarios;
}

absl::StatusOr<Planner> PlannerOf(const Question& question, const Scenario& scenario) {
  Planner::Options options = question.options;
  options.batch_factor = scenario.batch_factor;
  for (const NamedCluster& cluster : question.clusters) {
    if (cluster.name == scenario.cluster) options.cluster = cluster.cluster;
  }
  return Planner::Create(std::move(options));
}

std::vector<Forecast> PlanScenario(const Planner& planner, const CandidateLimits& limits,
                                   const Question& question, const Scenario& scenario) {
  ProgressOfPlan progress(absl::StrCat(scenario.ranks, " devices of ", scenario.cluster));
  const PlanProgress show = [&progress](int64_t done, int64_t known) { progress(done, known); };
  if (question.mesh.has_value()) {
    return PlanCandidates(planner, CandidatesOf(*question.mesh, limits), show);
  }
  return Search(planner, limits, show);
}

// The run that --explain names: the first of the mesh, or of the line; a mesh that was not planned
// is planned now, so that the engine says why it is refused.
absl::StatusOr<Candidate> NamedRun(const Planner& planner, const CandidateLimits& limits,
                                   const PlannedScenario& planned, const std::string& name) {
  if (name == "best") {
    if (planned.best() == nullptr) return planned.runs.front().refused;
    return planned.best()->candidate;
  }
  const absl::StatusOr<MeshShape> mesh = MeshShape::Parse(name);
  for (const Forecast& run : planned.runs) {
    const bool is_named =
        mesh.ok() ? run.candidate.mesh == *mesh : run.candidate.ToString() == name;
    if (!is_named) continue;
    if (!run.refused.ok()) return Annotate(run.refused, absl::StrCat(name, " is refused"));
    return run.candidate;
  }
  if (!mesh.ok()) {
    return InvalidArgument("--explain ", name,
                           ": no such run was planned; write a mesh such as pp=2,dp=4, a line of "
                           "the table, or best");
  }
  LS_RETURN_IF_ERROR(mesh->Check(static_cast<int>(planned.scenario.ranks)));
  const Candidate candidate = UsualCandidate(*mesh, limits);
  const Forecast run = planner.Plan(candidate);
  if (!run.refused.ok()) return Annotate(run.refused, absl::StrCat(name, " is refused"));
  return candidate;
}

// Returns the runs of `candidates` by IsBetter; plans those that `planned` lacks.
std::vector<Forecast> RunsOf(const Planner& planner, const PlannedScenario& planned,
                             const std::vector<Candidate>& candidates) {
  std::vector<Forecast> runs;
  std::vector<Candidate> missing;
  for (const Candidate& candidate : candidates) {
    const auto known = std::ranges::find(planned.runs, candidate, &Forecast::candidate);
    if (known != planned.runs.end()) {
      runs.push_back(*known);
    } else {
      missing.push_back(candidate);
    }
  }
  const std::vector<Forecast> planned_now =
      PlanCandidates(planner, missing, [](int64_t, int64_t) {});
  runs.insert(runs.end(), planned_now.begin(), planned_now.end());
  std::ranges::stable_sort(runs, IsBetter);
  return runs;
}

const Forecast* FirstThatFits(const std::vector<Forecast>& runs) {
  return runs.empty() || !runs.front().fits ? nullptr : &runs.front();
}

// Chart ids begin with `id`.
absl::StatusOr<Section> ExplanationOf(const Planner& planner, const CandidateLimits& limits,
                                      const PlannedScenario& planned, const Candidate& candidate,
                                      const std::string& id) {
  LS_ASSIGN_OR_RETURN(const Explanation explanation, planner.Explain(candidate));
  const std::vector<Forecast> changed = RunsOf(planner, planned, Variants(candidate, limits));
  Section section = {.title = candidate.ToString()};
  for (Paragraph& paragraph : Verdict(explanation, planner.room())) {
    section.items.push_back(std::move(paragraph));
  }
  if (!explanation.forecast.fits) {
    if (const Forecast* one = FirstThatFits(changed)) {
      section.items.push_back(WayToFit(explanation.forecast, one, Changes::kOne));
    } else {
      const std::vector<Forecast> smaller =
          RunsOf(planner, planned, SmallerCandidates(candidate, limits));
      section.items.push_back(
          WayToFit(explanation.forecast, FirstThatFits(smaller), Changes::kSeveral));
    }
  }
  section.items.push_back(RanksTable(explanation.forecast));
  section.items.push_back(FasterTable(explanation));
  section.items.push_back(ChangesTable(explanation.forecast, changed));
  section.items.push_back(MemoryTable(explanation.forecast));
  for (Chart& chart : StepCharts(explanation, id)) section.items.push_back(std::move(chart));
  return section;
}

// The best run on most devices of each cluster, explained.
absl::StatusOr<std::vector<Section>> ExplanationOfEach(
    const Question& question, const std::vector<PlannedScenario>& planned) {
  std::vector<Section> sections;
  for (const NamedCluster& cluster : question.clusters) {
    const PlannedScenario* last = nullptr;
    for (const PlannedScenario& one : planned) {
      const Scenario& scenario = one.scenario;
      const bool is_strong = scenario.cluster == cluster.name && scenario.batch_factor == 1;
      if (is_strong && one.best() != nullptr) last = &one;
    }
    if (last == nullptr) continue;
    LS_ASSIGN_OR_RETURN(const Planner planner, PlannerOf(question, last->scenario));
    LS_ASSIGN_OR_RETURN(const CandidateLimits limits, planner.Limits(last->scenario.ranks));
    LS_ASSIGN_OR_RETURN(Section section,
                        ExplanationOf(planner, limits, *last, last->best()->candidate,
                                      absl::StrCat("step-", sections.size())));
    section.title =
        absl::StrCat(last->scenario.ranks, " devices of ", cluster.name, ": ", section.title);
    sections.push_back(std::move(section));
  }
  return sections;
}

// Speed and cost of a run with fewer and more data-parallel ranks, for a page that has no other
// numbers of devices.
std::vector<Chart> ReplicaCharts(const Planner& planner, const CandidateLimits& limits,
                                 const PlannedScenario& planned, const Candidate& candidate) {
  std::vector<Forecast> runs =
      RunsOf(planner, planned, WithOtherReplicas(candidate, limits, planner.cluster().devices()));
  std::ranges::sort(runs, {}, [](const Forecast& run) { return run.candidate.mesh.ranks(); });
  std::vector<PlannedScenario> scenarios;
  for (Forecast& run : runs) {
    const int64_t ranks = run.candidate.mesh.ranks();
    scenarios.push_back({.scenario = {.cluster = planned.scenario.cluster, .ranks = ranks}});
    scenarios.back().runs.push_back(std::move(run));
  }
  return ScalingCharts(scenarios, "this mesh with fewer and more ranks along dp");
}

absl::StatusOr<int> Run(const std::vector<std::string>&) {
  if (absl::GetFlag(FLAGS_png) && absl::GetFlag(FLAGS_html).empty()) {
    return InvalidArgument("--png draws the page: say where it goes, --html FILE");
  }
  LS_ASSIGN_OR_RETURN(const Question question, ReadQuestion());
  const std::vector<Scenario> scenarios = ScenariosOf(question);
  const std::string explain = absl::GetFlag(FLAGS_explain), write = absl::GetFlag(FLAGS_write);
  if (scenarios.size() > 1 && !(explain.empty() && write.empty())) {
    return InvalidArgument("--explain and --write take one cluster and one number of ranks");
  }
  const bool has_page = !absl::GetFlag(FLAGS_html).empty();
  std::vector<OutputFile> outputs;
  if (has_page) {
    outputs.push_back(OutputThatBeginsWith(UserPath(absl::GetFlag(FLAGS_html)), "an HTML page",
                                           "<!DOCTYPE html>"));
  }
  if (!write.empty()) {
    outputs.push_back({.path = UserPath(write),
                       .kind = "a configuration that a plan has written",
                       .is_of_kind = [](std::string_view contents) {
                         // Each key has its source behind it.
                         return contents.substr(0, contents.find('\n')).find(" # ") !=
                                contents.npos;
                       }});
  }
  std::vector<std::string> inputs = {
      ShippedPath("tools/plan/workloads", absl::GetFlag(FLAGS_workload))};
  for (const std::string& cluster : absl::GetFlag(FLAGS_cluster).values) {
    inputs.push_back(ShippedPath("foresight/clusters", cluster));
  }
  LS_RETURN_IF_ERROR(CheckOutputs(outputs, inputs));

  std::vector<PlannedScenario> planned;
  Report text = {.title = "", .sections = {}}, page = text;
  bool any_fits = false;
  for (const Scenario& scenario : scenarios) {
    LS_ASSIGN_OR_RETURN(const Planner planner, PlannerOf(question, scenario));
    PlannedScenario& now = planned.emplace_back(PlannedScenario{.scenario = scenario});
    LS_ASSIGN_OR_RETURN(const CandidateLimits limits, planner.Limits(scenario.ranks));
    now.runs = PlanScenario(planner, limits, question, scenario);
    any_fits |= now.best() != nullptr && now.best()->fits;

    Section section = {.title = absl::StrCat(scenario.ranks, " devices of ", scenario.cluster)};
    if (scenario.batch_factor > 1) {
      absl::StrAppend(&section.title, ", batch x ", scenario.batch_factor);
    }
    const auto rows = static_cast<size_t>(absl::GetFlag(FLAGS_rows));
    section.items.push_back(RunsTable(now.runs, rows));
    if (now.best() != nullptr) {
      section.items.push_back(RunsMemoryTable(now.runs, rows));
      Table exposed = RunsCommunicationTable(now.runs, rows);
      if (exposed.columns.size() > 1) section.items.push_back(std::move(exposed));
    }
    if (Table refused = RefusedTable(now.runs); !refused.rows.empty()) {
      section.items.push_back(std::move(refused));
    }
    if (scenarios.size() == 1) text.sections.push_back(section);
    if (has_page && now.best() != nullptr) section.items.push_back(MeshMap(now.runs));
    page.sections.push_back(std::move(section));
    if (scenarios.size() > 1) continue;

    if (explain.empty() && !has_page && write.empty()) continue;
    LS_ASSIGN_OR_RETURN(const Candidate candidate,
                        NamedRun(planner, limits, now, explain.empty() ? "best" : explain));
    if (!write.empty() && (any_fits || !explain.empty())) {
      LS_ASSIGN_OR_RETURN(const std::string config, planner.ConfigurationOf(candidate));
      LS_RETURN_IF_ERROR(WriteOutput(UserPath(write), config));
    }
    if (explain.empty() && !has_page) continue;
    LS_ASSIGN_OR_RETURN(Section explained, ExplanationOf(planner, limits, now, candidate, "step"));
    if (!explain.empty()) text.sections.push_back(explained);
    if (!has_page) continue;
    for (Chart& chart : ReplicaCharts(planner, limits, now, candidate)) {
      explained.items.push_back(std::move(chart));
    }
    page.sections.push_back(std::move(explained));
  }
  page.title = absl::StrCat("A plan of ", absl::GetFlag(FLAGS_workload));
  if (scenarios.size() > 1 && has_page) {
    LS_ASSIGN_OR_RETURN(std::vector<Section> explained, ExplanationOfEach(question, planned));
    std::ranges::move(explained, std::back_inserter(page.sections));
  }
  if (scenarios.size() > 1 || question.budget > 0) {
    Section best = {.title = "The best mesh", .items = {BestTable(planned, question.budget)}};
    text.sections.push_back(best);
    for (Chart& chart : ScalingCharts(planned, "the best mesh"))
      best.items.push_back(std::move(chart));
    page.sections.insert(page.sections.begin(), std::move(best));
  }
  std::fputs(TextOf(text).c_str(), stdout);
  if (has_page) {
    const Pictures pictures = absl::GetFlag(FLAGS_png) ? Pictures::kBesidePage : Pictures::kNone;
    LS_RETURN_IF_ERROR(WritePage(page, "plan", UserPath(absl::GetFlag(FLAGS_html)), pictures));
  }
  if (!any_fits) {
    std::fputs(write.empty() || !explain.empty()
                   ? "\nNo run fits.\n"
                   : "\nNo run fits, and none is written: --explain names one to write.\n",
               stdout);
  }
  return any_fits ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage = "Plans a workload on a described cluster: what each mesh costs in time and memory, "
                "and which is\nbest. docs/planning.md says how to read a plan.",
       .files = {__FILE__, lockstep::kOverwriteFlagFile}},
      lockstep::Run);
}
