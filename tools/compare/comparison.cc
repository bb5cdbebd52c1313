#include "tools/compare/comparison.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

// Tables that say how a workload is run, not what it is.
constexpr const char* kTablesOfTheRun[] = {"mesh",       "run",    "trace", "checkpoint",
                                           "validation", "memory", "tp"};

bool BelongsToTheRun(const std::string& key, const RunRecord& a, const RunRecord& b) {
  // Compared as the summaries tell them.
  if (key == "batch.shards" || key == "batch.shard_groups") return true;
  const auto in_table = [&key](const std::string& table) {
    return absl::StartsWith(key, absl::StrCat(table, "."));
  };
  return std::any_of(std::begin(kTablesOfTheRun), std::end(kTablesOfTheRun), in_table) ||
         in_table(a.strategy) || in_table(b.strategy);
}

std::vector<Config::Difference> ConfigDifferences(const RunRecord& a, const RunRecord& b) {
  std::vector<Config::Difference> differences = a.config.Differences(b.config);
  std::erase_if(differences,
                [&](const auto& difference) { return BelongsToTheRun(difference.key, a, b); });
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

std::string Label(const ComparedWorkload& workload, const RunRecord& run) {
  const auto count = [&workload](auto matches) {
    return std::count_if(workload.runs.begin(), workload.runs.end(),
                         [&](const ComparedRun& other) { return matches(other.run); });
  };
  const bool is_only_one =
      count([&](const RunRecord& other) { return other.strategy == run.strategy; }) == 1;
  // Beside runs with adapters, its strategy does not tell what a run without them is there for.
  const bool tells = HasAdapters(run) || count(HasAdapters) == 0;
  if (is_only_one && tells) return run.strategy;
  return absl::StrCat(run.strategy, " (", std::filesystem::path(run.directory).filename().string(),
                      ")");
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
        other.shard_groups == run.shard_groups && other.micro_batches == run.micro_batches) {
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
