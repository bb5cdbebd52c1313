#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/layout/model_layout.h"
#include "glog/logging.h"

namespace lockstep {

// How the blocks of a model are divided into stages, and the stages over ranks.
struct StagePlan {
  std::vector<BlockRange> stages;  // in the order of the model
  std::vector<int> rank_of_stage;  // by stage; a rank has one at least
  std::string note = "";           // what was measured for it; empty: nothing

  int size() const { return static_cast<int>(stages.size()); }
  // The rank that has the loss.
  int last_rank() const { return rank_of_stage.back(); }
  // The stages of each rank, in their order.
  std::vector<std::vector<BlockRange>> RangesByRank() const {
    const auto ranks = 1 + *std::max_element(rank_of_stage.begin(), rank_of_stage.end());
    std::vector<std::vector<BlockRange>> ranges(ranks);
    for (int stage = 0; stage < size(); ++stage) {
      ranges[rank_of_stage[stage]].push_back(stages[stage]);
    }
    return ranges;
  }
  int StageOfBlock(int64_t block) const {
    for (int stage = 0; stage < size(); ++stage) {
      if (stages[stage].Contains(block)) return stage;
    }
    LOG(FATAL) << "no stage has block " << block;
  }
};

}  // namespace lockstep
