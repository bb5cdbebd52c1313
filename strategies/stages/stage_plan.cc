#include "strategies/stages/stage_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "glog/logging.h"

namespace lockstep {

std::vector<int> StagePlan::StagesOf(int rank) const {
  std::vector<int> own;
  for (int stage = 0; stage < size(); ++stage) {
    if (rank_of_stage[stage] == rank) own.push_back(stage);
  }
  return own;
}

std::vector<BlockRange> StagePlan::RangesOf(int rank) const {
  std::vector<BlockRange> ranges;
  for (const int stage : StagesOf(rank)) ranges.push_back(stages[stage]);
  return ranges;
}

std::vector<std::vector<BlockRange>> StagePlan::RangesByRank() const {
  std::vector<std::vector<BlockRange>> ranges;
  const int ranks = 1 + *std::max_element(rank_of_stage.begin(), rank_of_stage.end());
  for (int rank = 0; rank < ranks; ++rank) ranges.push_back(RangesOf(rank));
  return ranges;
}

int StagePlan::StageOfBlock(int64_t block) const {
  for (int stage = 0; stage < size(); ++stage) {
    if (stages[stage].Contains(block)) return stage;
  }
  LOG(FATAL) << "no stage has block " << block;
}

StagePlan OneStageARank(std::vector<BlockRange> stages) {
  StagePlan plan = {.stages = std::move(stages), .rank_of_stage = {}};
  plan.rank_of_stage.resize(plan.stages.size());
  std::iota(plan.rank_of_stage.begin(), plan.rank_of_stage.end(), 0);
  return plan;
}

}  // namespace lockstep
