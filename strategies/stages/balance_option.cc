#include "strategies/stages/balance_option.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/nearest.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

constexpr char kKey[] = "balance";

// What EvenBalance evens out.
std::vector<int64_t> CostsOf(const Model& model, const std::vector<BlockProfile>& profiles,
                             BalanceOption::By by, int64_t micro_batches_in_flight) {
  if (by == BalanceOption::By::kCost) return BlockCosts(model);
  CHECK_EQ(profiles.size(), model.blocks.size());
  return by == BalanceOption::By::kTime ? TimeCosts(profiles)
                                        : SizeCosts(profiles, micro_batches_in_flight);
}

}  // namespace

BalanceOption ReadBalance(ConfigReader& reader) {
  const std::vector<std::pair<std::string, BalanceOption::By>> kinds = {
      {"cost", BalanceOption::By::kCost},
      {"time", BalanceOption::By::kTime},
      {"size", BalanceOption::By::kSize}};
  std::variant<std::string, std::vector<int64_t>> value = kinds.front().first;
  reader.Read(kKey, &value);
  if (const auto* given = std::get_if<std::vector<int64_t>>(&value)) {
    if (given->empty()) reader.AddProblem(kKey, "is [], which leaves all stages without blocks");
    return {.by = BalanceOption::By::kGiven, .given = *given};
  }
  const std::string& name = std::get<std::string>(value);
  std::vector<std::string> names;
  for (const auto& [known, by] : kinds) {
    if (known == name) return {.by = by};
    names.push_back(known);
  }
  reader.AddProblem(kKey,
                    absl::StrCat("is \"", name, "\"; did you mean \"", NearestName(name, names),
                                 "\"? It is a list of how many blocks each stage gets, or "
                                 "\"cost\", \"time\" or \"size\""));
  return {};
}

bool NeedsProfiles(const BalanceOption& option) {
  return option.by == BalanceOption::By::kTime || option.by == BalanceOption::By::kSize;
}

std::vector<int64_t> FindBalance(const Model& model, const std::vector<BlockProfile>& profiles,
                                 const BalanceOption& option, const std::vector<int>& rank_of_stage,
                                 int64_t micro_batches_in_flight) {
  if (option.by == BalanceOption::By::kGiven) return option.given;
  return EvenBalance(CostsOf(model, profiles, option.by, micro_batches_in_flight), rank_of_stage);
}

std::string DescribeBalance(const Model& model, const std::vector<BlockProfile>& profiles,
                            const BalanceOption& option, const std::vector<int64_t>& balance,
                            int64_t micro_batches_in_flight) {
  if (!NeedsProfiles(option)) return "";
  const std::vector<int64_t> costs = CostsOf(model, profiles, option.by, micro_batches_in_flight);
  std::vector<std::string> blocks;
  for (size_t i = 0; i < costs.size(); ++i) {
    blocks.push_back(
        absl::StrFormat("%s %.3g", model.blocks[i]->name(), static_cast<double>(costs[i]) * 1e-6));
  }
  return absl::StrCat(
      "balance = [", absl::StrJoin(balance, ", "), "], by ",
      option.by == BalanceOption::By::kTime ? "time of blocks in ms: " : "size of blocks in MB: ",
      absl::StrJoin(blocks, ", "));
}

std::vector<int64_t> TimeCosts(const std::vector<BlockProfile>& profiles) {
  std::vector<int64_t> costs;
  for (const BlockProfile& profile : profiles) costs.push_back(profile.nanos);
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
