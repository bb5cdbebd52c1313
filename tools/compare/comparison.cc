#include "tools/compare/comparison.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tools/compare/mesh_name.h"

namespace lockstep {
namespace {

// Tables that say how a workload is run, not what it is.
constexpr const char* kTablesOfTheRun[] = {
    "mesh",   "run",      "trace",         "checkpoint", "validation",
    "memory", "pipeline", "data_parallel", "recompute",  "tensor_parallel"};

bool BelongsToTheRun(const std::string& key) {
  // Compared as the summaries tell them.
  if (key == "cut.shards") return true;
  const auto in_table = [&key](const std::string& table) {
    return absl::StartsWith(key, absl::StrCat(table, "."));
  };
  return std::any_of(std::begin(kTablesOfTheRun), std::end(kTablesOfTheRun), in_table);
}

std::vector<Config::Difference> ConfigDifferences(const RunRecord& a, const RunRecord& b) {
  std::vector<Config::Difference> differences = a.config.Differences(b.config);
  std::erase_if(differences,
                [](const auto& difference) { return BelongsToTheRun(difference.key); });
  return differences;
}

std::vector<LossPoint> Differences(const RunRecord& run, const RunRecord& reference, int64_t rows) {
  std::vector<LossPoint> differences;
  for (int64_t i = 0; i < rows; ++i) {
    const double loss = run.losses[i].loss, expected = reference.losses[i].loss;
    differences.push_back({.step = run.losses[i].step,
                           .loss = loss == expected ? 0 : (loss - expected) / std::abs(expected)});
  }
  return differences;
}

ComparedRun CompareRun(const RunRecord& run, const std::vector<RunRecord>& runs) {
  ComparedRun result;
  result.run = run;
  if (!run.complete()) return result;
  const RunRecord* reference = FindReference(run, runs);
  if (reference == nullptr) return result;
  result.is_reference = reference == &run;
  result.curve = CompareCurves(run.losses, reference->losses, 0);
  result.differences = Differences(run, *reference, result.curve->compared);
  result.same_length = run.losses.size() == reference->losses.size();
  result.same_parameters = run.parameter_hash == reference->parameter_hash;
  result.differences_of_config = ConfigDifferences(run, *reference);
  return result;
}

// Ways to tell a run from others of its strategy; empty: not so.
std::string ByMesh(const RunRecord& run) {
  if (!run.complete()) return "";
  return run.ranks == 1 ? "1 rank" : ShortMesh(run.mesh);
}

std::string ByCut(const RunRecord& run) {
  if (!run.complete()) return "";
  return absl::StrCat(run.shards, " x ", run.micro_batches);
}

// The last `names` of its directory's.
std::string ByDirectory(const RunRecord& run, int names) {
  const std::filesystem::path path(run.directory);
  std::filesystem::path last;
  for (auto name = path.end(); names > 0 && name != path.begin(); --names) {
    --name;
    last = last.empty() ? *name : *name / last;
  }
  return last.string();
}

// The strategy, and where there are several runs of it, the first that tells each from all others.
std::string Label(const ComparedWorkload& workload, const RunRecord& run) {
  std::vector<const RunRecord*> alike;
  for (const ComparedRun& other : workload.runs) {
    if (other.run.strategy == run.strategy) alike.push_back(&other.run);
  }
  // Beside runs with adapters, its strategy does not tell what a run without them is there for.
  const bool tells = HasAdapters(run) ||
                     std::none_of(workload.runs.begin(), workload.runs.end(),
                                  [](const ComparedRun& other) { return HasAdapters(other.run); });
  if (alike.size() == 1 && tells) return run.strategy;
  if (alike.size() == 1) return absl::StrCat(run.strategy, " (", ByDirectory(run, 1), ")");
  constexpr int kMostNames = 8;
  std::vector<std::function<std::string(const RunRecord&)>> distinctions = {ByMesh, ByCut};
  for (int names = 1; names < kMostNames; ++names) {
    distinctions.push_back([names](const RunRecord& of) { return ByDirectory(of, names); });
  }
  for (const auto& distinction : distinctions) {
    std::set<std::string> names;
    for (const RunRecord* other : alike) names.insert(distinction(*other));
    if (names.size() == alike.size() && !names.contains("")) {
      return absl::StrCat(run.strategy, " (", distinction(run), ")");
    }
  }
  return absl::StrCat(run.strategy, " (", run.directory, ")");
}

}  // namespace

bool HasAdapters(const RunRecord& run) {
  const ConfigValue* lora = run.config.Table("lora").value;
  return lora != nullptr && lora->As<ConfigValue::Table>() != nullptr;
}

bool IsAlone(const RunRecord& other, const RunRecord& run) {
  return other.complete() && (other.strategy == "single" || other.strategy == "lora") &&
         other.workload == run.workload && HasAdapters(other) == HasAdapters(run);
}

const RunRecord* FindReference(const RunRecord& run, const std::vector<RunRecord>& runs) {
  for (const RunRecord& other : runs) {
    if (IsAlone(other, run) && other.shards == run.shards &&
        other.micro_batches == run.micro_batches) {
      return &other;
    }
  }
  return nullptr;
}

std::vector<ComparedWorkload> CompareRuns(const std::vector<RunRecord>& runs) {
  std::vector<ComparedWorkload> workloads;
  for (const RunRecord& run : runs) {
    auto workload = std::find_if(workloads.begin(), workloads.end(),
                                 [&](const auto& other) { return other.workload == run.workload; });
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
