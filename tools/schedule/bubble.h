#pragma once

#include <optional>
#include <string>

#include "strategies/schedules/schedule.h"
#include "strategies/schedules/simulation.h"

namespace lockstep {

// The bubble of a schedule in closed form: for p ranks, m micro-batches, v stages a rank, all
// stages alike, and transfers that take no time.
struct BubbleFormula {
  std::string text;     // "(p-1)/(m+p-1)"
  double fraction = 0;  // of all ranks' time
};

// The bubble of gpipe and 1f1b (Huang et al., 2019; Narayanan et al., 2019), interleaved_1f1b
// (Narayanan et al., SC 2021), zb_h1 with at least as many micro-batches as ranks (Qi et al.,
// 2023), layerwise, where one rank works at a time, and, where the three costs are equal, zb_v with
// at least 2p - 1 micro-batches and dualpipe_v (v_shaped_test.cc says where their formula comes
// from); by the schedule's name, nothing for others.
std::optional<BubbleFormula> BubbleInClosedForm(const Schedule& schedule, const StageCosts& costs);

}  // namespace lockstep
