#include "tools/compare/comparison.h"

#include <algorithm>
#include <functional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/config/legs.h"

namespace lockstep {
namespace {

// Tables that say how a workload is run, not what it is.
constexpr const char* kTablesOfTheRun[] = {"mesh",
                                           "run",
                                           "trace",
                                           "checkpoint",
                                           "validation",
                                           "memory",
                                           "pipeline",
                                           "data_parallel",
                                           "recompute",
                                           "tensor_parallel",
                                           "context_parallel",
                                           "comm",
                                           "hashes",
                                           "probe",
                                           "metrics",
                                           "guard"};

bool BelongsToTheRun(const std::string& key) {
  if (key == "train.legs") return true;  // strategies on meshes
  // Compared as the summaries tell them, which know those that the mesh has given.
  if (key == "cut.shards" || key == "cut.tokens" || key == "cut.features") return true;
  const auto in_table = [&key](const std::string& table) {
    return absl::StartsWith(key, absl::StrCat(table, "."));
  };
  return std::ranges::any_of(kTablesOfTheRun, in_table);
}

ComparedRun CompareRun(const RunRecord& run, const std::vector<RunRecord>& runs) {
  ComparedRun result;
  result.run = run;
  if (!run.complete()) return result;
  const RunRecord* reference = FindReference(run, runs);
  if (reference == nullptr) return result;
  result.is_reference = reference == &run;
  result.curve = CompareCurves(run.losses, reference->losses, 0);
  result.differences = Differences(run.losses, reference->losses);
  result.differences.resize(result.curve->compared);
  result.same_length = run.losses.size() == reference->losses.size();
  result.same_parameters = run.parameter_hash == reference->parameter_hash;
  for (Config::Difference& difference : run.config.Differences(reference->config)) {
    auto& side =
        BelongsToTheRun(difference.key) ? result.differences_of_run : result.differences_of_config;
    side.push_back(std::move(difference));
  }
  return result;
}

std::vector<std::string> DividedAxes(const std::string& mesh) {
  std::vector<std::string> axes = absl::StrSplit(mesh, ',', absl::SkipEmpty());
  std::erase_if(axes, [](const std::string& axis) { return axis.ends_with("=1"); });
  return axes;
}

// The last `names` of its directory's.
std::string ByDirectory(const RunRecord& run, int names) {
  const std::vector<absl::string_view> path = absl::StrSplit(run.directory, '/', absl::SkipEmpty());
  const auto all = static_cast<int>(path.size());
  return absl::StrJoin(path.end() - std::min(names, all), path.end(), "/");
}

// What a run trains under: "ddp", or "3 legs, ddp -> fsdp -> gpipe", which leaves out the middle of
// many legs.
std::string StrategyOf(const RunRecord& run) {
  constexpr size_t kNamedLegs = 4;
  if (run.legs.empty() || !run.complete()) return run.strategy;
  std::vector<std::string> names;
  for (const Leg& leg : run.legs) names.push_back(leg.formation.strategy);
  if (names.size() > kNamedLegs) {
    names.erase(names.begin() + 2, names.end() - 1);
    names.insert(names.end() - 1, "...");
  }
  return absl::StrCat(run.legs.size(), " legs, ", absl::StrJoin(names, " -> "));
}

// The strategy, and where there are several runs of it, the first that tells each from all others.
std::string Label(const ComparedWorkload& workload, const RunRecord& run) {
  const std::string strategy = StrategyOf(run);
  std::vector<const RunRecord*> alike;
  for (const ComparedRun& other : workload.runs) {
    if (StrategyOf(other.run) == strategy) alike.push_back(&other.run);
  }
  // Beside runs with adapters, its strategy does not tell what a run without them is there for.
  const bool tells =
      HasAdapters(run) || std::ranges::none_of(workload.runs, HasAdapters, &ComparedRun::run);
  if (alike.size() == 1 && tells) return strategy;
  if (alike.size() == 1) return absl::StrCat(strategy, " (", ByDirectory(run, 1), ")");
  constexpr int kMostNames = 8;
  std::vector<std::function<std::string(const RunRecord&)>> distinctions;
  if (std::ranges::all_of(alike, &RunRecord::complete)) {  // others do not tell
    if (run.legs.empty()) {                                // the mesh is that of the last leg
      distinctions.emplace_back(
          [](auto& of) { return of.ranks == 1 ? "1 rank" : ShortMesh(of.mesh); });
    }
    distinctions.emplace_back(
        [](auto& of) { return absl::StrCat(of.shards, " x ", of.micro_batches); });
  }
  for (int names = 1; names < kMostNames; ++names) {
    distinctions.push_back([names](const RunRecord& of) { return ByDirectory(of, names); });
  }
  for (const auto& distinction : distinctions) {
    std::set<std::string> names;
    for (const RunRecord* other : alike) names.insert(distinction(*other));
    if (names.size() == alike.size() && !names.contains("")) {
      return absl::StrCat(strategy, " (", distinction(run), ")");
    }
  }
  return absl::StrCat(strategy, " (", run.directory, ")");
}

}  // namespace

std::string ShortMesh(const std::string& mesh) { return absl::StrJoin(DividedAxes(mesh), " "); }

std::string ShortFormation(const std::string& formation) {
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(formation, absl::MaxSplits(' ', 1));
  const std::string mesh = ShortMesh(parts.second);
  return absl::StrCat(parts.first, mesh.empty() ? "" : " ", mesh);
}

std::string MeshKind(const std::string& mesh) {
  std::vector<std::string> axes = DividedAxes(mesh);
  for (std::string& axis : axes) axis.resize(axis.find('='));
  return absl::StrJoin(axes, " x ");
}

bool HasAdapters(const RunRecord& run) {
  const ConfigValue* lora = run.config.Table("lora").value;
  return lora != nullptr && lora->As<ConfigValue::Table>() != nullptr;
}

const RunRecord* FindReference(const RunRecord& run, const std::vector<RunRecord>& runs) {
  const auto cut = [](const RunRecord& of) {
    return std::tie(of.shards, of.micro_batches, of.tokens, of.features);
  };
  const auto found = std::ranges::find_if(runs, [&](const RunRecord& other) {
    return other.complete() && other.legs.empty() &&
           (other.strategy == "single" || other.strategy == "lora") &&
           other.workload == run.workload && HasAdapters(other) == HasAdapters(run) &&
           cut(other) == cut(run);
  });
  return found == runs.end() ? nullptr : &*found;
}

std::vector<ComparedWorkload> CompareRuns(const std::vector<RunRecord>& runs) {
  std::vector<ComparedWorkload> workloads;
  for (const RunRecord& run : runs) {
    auto workload = std::ranges::find(workloads, run.workload, &ComparedWorkload::workload);
    if (workload == workloads.end()) {
      workloads.push_back({.workload = run.workload, .runs = {}});
      workload = workloads.end() - 1;
    }
    workload->runs.push_back(CompareRun(run, runs));
  }
  for (ComparedWorkload& workload : workloads) {
    for (ComparedRun& compared : workload.runs) compared.label = Label(workload, compared.run);
  }
  return workloads;
}

}  // namespace lockstep
