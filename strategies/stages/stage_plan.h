#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/run/local_model.h"

namespace lockstep {

// How the blocks of a model are divided into stages, and the stages over ranks.
struct StagePlan {
  std::vector<BlockRange> stages;  // in the order of the model
  std::vector<int> rank_of_stage;  // by stage; a rank has one at least
  std::string note = "";           // what was measured for it; empty: nothing

  int size() const { return static_cast<int>(stages.size()); }
  // The rank that has the loss.
  int last_rank() const { return rank_of_stage.back(); }
  // In their order.
  std::vector<int> StagesOf(int rank) const;
  std::vector<BlockRange> RangesOf(int rank) const;
  std::vector<std::vector<BlockRange>> RangesByRank() const;
  int StageOfBlock(int64_t block) const;
};

// Stage s on rank s.
StagePlan OneStageARank(std::vector<BlockRange> stages);

}  // namespace lockstep
