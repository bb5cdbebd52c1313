#include "strategies/stages/balance_option.h"

#include <cmath>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "core/base/nearest.h"
#include "core/base/status.h"
#include "core/comm/host_numbers.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

constexpr char kKey[] = "balance";

// Says on rank 0 what a run has measured, and how to have the same division again.
void Tell(const Model& model, BalanceOption::By by, const std::vector<int64_t>& costs,
          const std::vector<int64_t>& balance) {
  const bool is_time = by == BalanceOption::By::kTime;
  std::vector<std::string> blocks;
  for (size_t i = 0; i < costs.size(); ++i) {
    blocks.push_back(
        absl::StrFormat("%s %.3g", model.blocks[i]->name(), static_cast<double>(costs[i]) * 1e-6));
  }
  LOG(INFO) << "balance = [" << absl::StrJoin(balance, ", ") << "], by "
            << (is_time ? "time" : "size") << " of blocks in " << (is_time ? "ms" : "MB") << ": "
            << absl::StrJoin(blocks, ", ");
}

// Rank 0's costs, on all ranks.
std::vector<int64_t> Measure(const StrategyInputs& inputs, BalanceOption::By by,
                             int64_t micro_batches_in_flight) {
  std::vector<int64_t> costs(inputs.model.blocks.size());
  if (inputs.rank.rank == 0) {
    absl::StatusOr<Model> model = inputs.another_model();
    ThrowIfError(model.status());
    const std::vector<BlockProfile> profiles =
        ProfileBlocks(inputs.rank, *std::move(model), inputs.settings, inputs.dataset);
    costs = by == BalanceOption::By::kTime ? TimeCosts(profiles)
                                           : SizeCosts(profiles, micro_batches_in_flight);
  }
  ThrowIfError(
      BroadcastNumbers(inputs.rank.mesh.world(), absl::MakeSpan(costs), 0, "costs of blocks"));
  return costs;
}

}  // namespace

BalanceOption ReadBalance(ConfigReader& reader) {
  const std::vector<std::pair<std::string, BalanceOption::By>> ways = {
      {"cost", BalanceOption::By::kCost},
      {"time", BalanceOption::By::kTime},
      {"size", BalanceOption::By::kSize}};
  std::variant<std::string, std::vector<int64_t>> value = ways.front().first;
  reader.Read(kKey, &value);
  if (const auto* given = std::get_if<std::vector<int64_t>>(&value)) {
    if (given->empty()) reader.AddProblem(kKey, "is [], which leaves all stages without blocks");
    return {.by = BalanceOption::By::kGiven, .given = *given};
  }
  const std::string& name = std::get<std::string>(value);
  std::vector<std::string> names;
  for (const auto& [known, by] : ways) {
    if (known == name) return {.by = by};
    names.push_back(known);
  }
  reader.AddProblem(kKey,
                    absl::StrCat("is \"", name, "\"; did you mean \"", NearestName(name, names),
                                 "\"? It is a list of how many blocks each stage gets, or "
                                 "\"cost\", \"time\" or \"size\""));
  return {};
}

std::vector<int64_t> FindBalance(const StrategyInputs& inputs, const BalanceOption& option,
                                 const std::vector<int>& rank_of_stage,
                                 int64_t micro_batches_in_flight) {
  switch (option.by) {
    case BalanceOption::By::kGiven:
      return option.given;
    case BalanceOption::By::kCost:
      return EvenBalance(BlockCosts(inputs.model), rank_of_stage);
    case BalanceOption::By::kTime:
    case BalanceOption::By::kSize: {
      const std::vector<int64_t> costs = Measure(inputs, option.by, micro_batches_in_flight);
      const std::vector<int64_t> balance = EvenBalance(costs, rank_of_stage);
      if (inputs.rank.rank == 0) Tell(inputs.model, option.by, costs, balance);
      return balance;
    }
  }
  LOG(FATAL) << "no such balance";
}

std::vector<int64_t> TimeCosts(const std::vector<BlockProfile>& profiles) {
  std::vector<int64_t> costs;
  for (const BlockProfile& profile : profiles) {
    costs.push_back(static_cast<int64_t>(std::llround(profile.seconds * 1e9)));
  }
  return costs;
}

std::vector<int64_t> SizeCosts(const std::vector<BlockProfile>& profiles,
                               int64_t micro_batches_in_flight) {
  std::vector<int64_t> costs;
  for (const BlockProfile& profile : profiles) {
    costs.push_back(profile.activation_bytes * micro_batches_in_flight + profile.parameter_bytes);
  }
  return costs;
}

}  // namespace lockstep
