#include "strategies/stages/plan.h"

#include <algorithm>
#include <cstdint>
#include <iterator>  // std::ssize
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "strategies/stages/balance.h"

namespace lockstep {
namespace {

constexpr char kBalanceKey[] = "pipeline.balance";

absl::StatusOr<StagePlan> Divide(const Model& model, const Schedule& schedule,
                                 const std::vector<int64_t>& balance) {
  // DivideBlocks knows of one stage a rank.
  if (schedule.has_several_stages_a_rank()) {
    const std::string has = absl::StrCat("pipeline has ", schedule.stages(), " stages on ",
                                         schedule.ranks.size(), " ranks, but ");
    if (schedule.stages() > std::ssize(model.blocks)) {
      return absl::InvalidArgumentError(
          absl::StrCat(has, "the model has ", model.blocks.size(), " blocks; use fewer stages"));
    }
    if (!balance.empty() && std::ssize(balance) != schedule.stages()) {
      return absl::InvalidArgumentError(
          absl::StrCat(has, kBalanceKey, " = [", absl::StrJoin(balance, ", "), "] has ",
                       balance.size(), "; give the blocks of each stage"));
    }
  }
  LS_ASSIGN_OR_RETURN(std::vector<BlockRange> stages,
                      DivideBlocks(model, balance, schedule.stages(), kBalanceKey));
  return StagePlan{.stages = std::move(stages), .rank_of_stage = schedule.rank_of_stage};
}

}  // namespace

absl::Status CheckPlan(const Model& model, const Schedule& schedule, const BalanceOption& option) {
  return Divide(model, schedule, option.given).status();
}

StagePlan MakePlan(const StrategyInputs& inputs, const Schedule& schedule,
                   const BalanceOption& option) {
  int in_flight = 0;
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    in_flight = std::max(in_flight, PeakActivations(schedule, static_cast<int>(rank)));
  }
  const std::vector<int64_t> balance =
      FindBalance(inputs, option, schedule.rank_of_stage, in_flight);
  return Divide(inputs.model, schedule, balance).value();
}

}  // namespace lockstep
