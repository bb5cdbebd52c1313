#include "strategies/recompute/policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/nearest.h"
#include "core/base/status.h"
#include "core/config/config_reader.h"

namespace lockstep {
namespace {

enum class Granularity { kNone, kFull, kSelective };

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

absl::StatusOr<RecomputePolicy> ReadRecomputePolicy(const Config& config) {
  RecomputePolicy policy;
  ConfigReader reader(config.Table(kRecomputeTable));
  reader.ReadChoice("micro_batches", &policy.micro_batches,
                    {{"always", Checkpointing::kAlways},
                     {"except_last", Checkpointing::kExceptLast},
                     {"never", Checkpointing::kNever}});
  reader.Read("blocks", &policy.blocks);
  reader.Read("operations", &policy.operations);
  auto granularity = Granularity::kNone;
  reader.ReadChoice("granularity", &granularity,
                    {{"none", Granularity::kNone},
                     {"full", Granularity::kFull},
                     {"selective", Granularity::kSelective}});
  if (granularity != Granularity::kNone && !(policy.blocks.empty() && policy.operations.empty())) {
    reader.AddProblem("granularity",
                      "says which blocks and operations are recomputed, and so do blocks and "
                      "operations; use granularity = \"none\", or leave the two out");
  }
  LS_RETURN_IF_ERROR(reader.Finish());
  if (granularity == Granularity::kFull) policy.blocks = {"*"};
  if (granularity == Granularity::kSelective) policy.operations = {"attention"};
  return policy;
}

absl::Status ApplyRecomputePolicy(const RecomputePolicy& policy, Model& model) {
  std::vector<std::string> problems, blocks, operations;
  for (const auto& block : model.blocks) {
    blocks.push_back(block->name());
    for (const OperationCost& operation : block->cost.operations) {
      if (!Contains(operations, operation.kind)) operations.push_back(operation.kind);
    }
  }
  for (const std::string& pattern : policy.blocks) {
    if (std::none_of(blocks.begin(), blocks.end(),
                     [&](const auto& block) { return MatchesLayer(pattern, block); })) {
      problems.push_back(absl::StrCat("recompute.blocks: no block matches '", pattern,
                                      "'; there are ", NearestNames(pattern, blocks)));
    }
  }
  for (const std::string& kind : policy.operations) {
    if (Contains(operations, kind)) continue;
    problems.push_back(absl::StrCat(
        "recompute.operations",
        kind == "attention" ? " (granularity = \"selective\" is [\"attention\"])" : "",
        ": this model has no operation '", kind, "'; ",
        operations.empty() ? "it has none, so use recompute.blocks"
                           : absl::StrCat("it has ", absl::StrJoin(operations, ", "))));
  }
  if (!problems.empty()) return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
  for (const auto& block : model.blocks) {
    const auto matches = [&block](const auto& pattern) {
      return MatchesLayer(pattern, block->name());
    };
    block->recomputed.whole = std::any_of(policy.blocks.begin(), policy.blocks.end(), matches);
    block->recomputed.operations = policy.operations;
  }
  return absl::OkStatus();
}

}  // namespace lockstep
