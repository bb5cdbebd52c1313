#include "strategies/stages/plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>  // std::ssize
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/nearest.h"
#include "core/base/status.h"
#include "glog/logging.h"
#include "strategies/schedules/simulation.h"
#include "strategies/stages/balance.h"
#include "strategies/stages/block_work.h"

namespace lockstep {
namespace {

using By = BalanceOption::By;

constexpr char kKey[] = "balance";

std::string Describe(const Model& model, By by, const std::vector<int64_t>& costs,
                     const std::vector<int64_t>& balance) {
  std::vector<std::string> blocks;
  for (size_t i = 0; i < costs.size(); ++i) {
    blocks.push_back(
        absl::StrFormat("%s %.3g", model.blocks[i]->name(), static_cast<double>(costs[i]) * 1e-6));
  }
  return absl::StrCat("balance = [", absl::StrJoin(balance, ", "), "], by ",
                      by == By::kTime ? "time of blocks in ms: " : "size of blocks in MB: ",
                      absl::StrJoin(blocks, ", "));
}

}  // namespace

BalanceOption ReadBalance(ConfigReader& reader) {
  const std::vector<std::pair<std::string, By>> kinds = {
      {"cost", By::kCost}, {"time", By::kTime}, {"size", By::kSize}};
  std::variant<std::string, std::vector<int64_t>> value = kinds.front().first;
  reader.Read(kKey, &value);
  if (const auto* given = std::get_if<std::vector<int64_t>>(&value)) {
    if (given->empty()) reader.AddProblem(kKey, "is [], which leaves all stages without blocks");
    return {.by = By::kGiven, .given = *given};
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
  return option.by == By::kTime || option.by == By::kSize;
}

std::vector<int64_t> BalanceCosts(const Model& model, const std::vector<BlockProfile>& profiles,
                                  By by, int64_t micro_batches_in_flight) {
  std::vector<int64_t> costs;
  if (by == By::kCost) {
    for (const BlockWork& work : WorkOfBlocks(model)) costs.push_back(std::llround(work.total()));
    return costs;
  }
  for (const BlockProfile& profile : profiles) {
    costs.push_back(by == By::kTime ? profile.nanos
                                    : profile.activation_bytes * micro_batches_in_flight +
                                          profile.parameter_bytes);
  }
  return costs;
}

absl::Status CheckPlan(const Model& model, const Schedule& schedule, const BalanceOption& option) {
  const int64_t stages = schedule.stages(), blocks = std::ssize(model.blocks);
  const bool has_several = schedule.has_several_stages_a_rank();
  const std::string pipeline = has_several ? absl::StrCat("pipeline has ", stages, " stages on ",
                                                          schedule.ranks.size(), " ranks")
                                           : absl::StrCat("mesh.pp is ", stages);
  // A message names the first of many.
  constexpr int64_t kNamed = 8;
  const auto named_end = model.blocks.begin() + std::min(blocks, kNamed);
  const std::string all = absl::StrCat(
      blocks, " blocks (",
      absl::StrJoin(model.blocks.begin(), named_end, ", ",
                    [](std::string* out, const auto& block) { out->append(block->name()); }),
      blocks > kNamed ? ", ..." : "", ")");
  if (stages > blocks) {
    return InvalidArgument(
        pipeline, ", but the model has ", all, " and each stage needs one; use ",
        has_several ? "fewer stages" : absl::StrCat("mesh.pp = ", blocks, " or less"));
  }
  const std::vector<int64_t>& balance = option.given;
  if (balance.empty()) return absl::OkStatus();
  const auto problem = [&](const std::string& what) {
    return InvalidArgument(
        "pipeline.", kKey, " = [", absl::StrJoin(balance, ", "), "] ", what,
        "; with \"cost\", \"time\" or \"size\" in its place the stages are evened out "
        "by what their blocks compute, take or hold");
  };
  if (std::ssize(balance) != stages) {
    return problem(absl::StrCat("has ", balance.size(), " stages, but ", pipeline));
  }
  if (*std::min_element(balance.begin(), balance.end()) < 1) {
    return problem("leaves a stage without blocks: each needs one");
  }
  // What is above the number of blocks does not fit, whatever the others are.
  int64_t sum = 0;
  for (const int64_t count : balance) sum += std::min(count, blocks + 1);
  if (sum != blocks) return problem(absl::StrCat("does not sum up to the model's ", all));
  return absl::OkStatus();
}

StagePlan MakePlan(const Model& model, const std::vector<BlockProfile>& profiles,
                   const Schedule& schedule, const BalanceOption& option) {
  StagePlan plan = {.stages = {}, .rank_of_stage = schedule.rank_of_stage};
  std::vector<int64_t> balance = option.given;
  if (option.by != By::kGiven) {
    int in_flight = 0;
    for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      in_flight = std::max(in_flight, PeakActivations(schedule, static_cast<int>(rank)));
    }
    const std::vector<int64_t> costs = BalanceCosts(model, profiles, option.by, in_flight);
    CHECK_EQ(costs.size(), model.blocks.size());
    balance = EvenBalance(costs, schedule.rank_of_stage);
    if (NeedsProfiles(option)) plan.note = Describe(model, option.by, costs, balance);
  }
  int64_t begin = 0;
  for (const int64_t blocks : balance) {
    plan.stages.push_back({begin, begin + blocks});
    begin += blocks;
  }
  return plan;
}

double BubbleFraction(const Model& model, const StagePlan& plan, const Schedule& schedule,
                      Checkpointing checkpointing, int rank) {
  const std::vector<BlockWork> blocks = WorkOfBlocks(model);
  // Beside the first one: what a backward computes again.
  const double again = MeanForwards(schedule.micro_batches, checkpointing) - 1;
  std::vector<StageCosts> costs;
  for (const BlockRange& stage : plan.stages) {
    StageCosts cost = {.forward = 0, .input_gradient = 0, .weight_gradient = 0};
    for (int64_t i = stage.begin; i < stage.end; ++i) {
      cost.forward += blocks[i].forward;
      cost.input_gradient += again * blocks[i].forward + blocks[i].input_gradient;
      cost.weight_gradient += blocks[i].weight_gradient;
    }
    costs.push_back(cost);
  }
  const Simulation simulation = Simulate(schedule, costs);
  if (simulation.total == 0) return 0;
  double busy = 0;
  for (const Simulation::Timed& timed : simulation.ranks[rank]) busy += timed.end - timed.begin;
  return 1 - busy / simulation.total;
}

}  // namespace lockstep
