#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "strategies/schedules/schedule.h"

namespace lockstep {

// All forwards, then all backwards (Huang et al., "GPipe", 2019). Backwards go in the order of the
// micro-batches, as `single` adds their gradients up.
Schedule GPipeSchedule(int ranks, int micro_batches);

// One forward, one backward, once as many micro-batches are on their way as there are stages behind
// (Narayanan et al., "PipeDream", 2019; its flushing form in "Megatron-LM", SC 2021): rank r keeps
// at most `ranks` - r of them.
Schedule OneForwardOneBackwardSchedule(int ranks, int micro_batches);

// The same with `stages_a_rank` stages on each rank, stage s on rank s % ranks: the bubble is
// divided by their number (Narayanan et al., SC 2021). InvalidArgument unless micro-batches divide
// by the ranks.
absl::StatusOr<Schedule> InterleavedSchedule(int ranks, int stages_a_rank, int micro_batches);

// 1F1B whose backward is split: input gradients go on at once, weight gradients fill what would be
// bubble, later by one on each rank (ZB-H1; Qi et al., 2023). No rank keeps more micro-batches than
// the first of 1F1B.
Schedule ZeroBubbleSchedule(int ranks, int micro_batches);

// One micro-batch at a time goes forward through all stages and back: what a model that is divided
// by its layers does without a pipeline.
Schedule LayerwiseSchedule(int ranks, int micro_batches);

// By name: layerwise, gpipe, 1f1b, interleaved_1f1b, zb_h1, zb_v, dualpipe_v (v_shaped.h has the
// last two). NotFound with the names that there are; InvalidArgument if the schedule cannot have
// this number of stages or micro-batches.
absl::StatusOr<Schedule> MakeSchedule(const std::string& name, int ranks, int stages_a_rank,
                                      int micro_batches);
std::vector<std::string> ScheduleNames();

// Stages on each rank where nobody says how many: 2 for the V-shaped schedules, which have no other
// number, else 1.
int DefaultStagesPerRank(const std::string& name);

// One row a rank, one cell an action, each with its stage: "0F0,0F1,0B0,0B1".
std::string ScheduleToCsv(const Schedule& schedule);
// InvalidArgument names row and cell that cannot be read. What the schedule says is not checked.
absl::StatusOr<Schedule> ScheduleFromCsv(const std::string& csv, const std::string& name);

}  // namespace lockstep
