#include "strategies/testing/split_workloads.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "models/models.h"
#include "nlohmann/json.hpp"

namespace lockstep {

std::string Name(SplitKind kind) {
  switch (kind) {
    case SplitKind::kGpt:
      return "Gpt";
    case SplitKind::kGptSplitSequence:
      return "GptSplitSequence";
    case SplitKind::kResNet:
      return "ResNet";
    case SplitKind::kUNet:
      return "UNet";
  }
  return "?";
}

SplitWorkload WorkloadOf(SplitKind kind) {
  if (kind == SplitKind::kResNet) return {SmallResNetConfig(), {"model.width=12"}, {}};
  if (kind == SplitKind::kUNet) {
    return {SmallUNetConfig(), {"model.width=12", "batch.size=4"}, {}};
  }
  SplitWorkload gpt = {
      SmallGptConfig(),
      {"model.heads=12", "model.width=48", "schedule.learning_rate=0.003", "cut.micro_batches=2"},
      {}};
  if (kind == SplitKind::kGptSplitSequence) {
    gpt.assignments.push_back("data.context=24");
    gpt.options = {"tensor_parallel.sequence_parallel=true"};
  }
  return gpt;
}

Assignments LeavesOf(SplitKind kind, int leaves) {
  Assignments cut = {absl::StrCat("cut.features=", leaves)};
  if (kind == SplitKind::kGptSplitSequence) cut.push_back(absl::StrCat("cut.tokens=", leaves));
  return cut;
}

std::vector<RankReport> Train(const StrategyDefinition& strategy, const SplitWorkload& workload,
                              const Assignments& assignments) {
  const auto& tables = strategy.tables;
  const bool splits = std::find(tables.begin(), tables.end(), "tensor_parallel") != tables.end();
  return RunStrategy(
      strategy, MakeModel, workload.config,
      With(With(workload.assignments, assignments), splits ? workload.options : Assignments{}));
}

std::vector<double> GradientNorms() {
  std::vector<double> norms;
  std::ifstream file(RunFolder() + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto row = nlohmann::json::parse(line);
    if (row.contains("gradient_norm")) norms.push_back(row["gradient_norm"]);
  }
  return norms;
}

}  // namespace lockstep
