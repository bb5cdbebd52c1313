#pragma once

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

// Schedules whose virtual stages lie in the shape of a V. Of 2p stages on p ranks, stage s < p is
// on rank s and stage s >= p on rank 2p - 1 - s: the last rank holds the two stages in the middle,
// between which nothing is sent, and the first rank holds the first stage and the last. A stage has
// half of the work of a stage of a schedule with one stage a rank.
inline constexpr int kStagesPerRankOfV = 2;

// ZB-V (Qi et al., "Zero Bubble Pipeline Parallelism", 2024; a building block of "Pipeline
// Parallelism with Controllable Memory", 2024). Each rank keeps the activations of at most 2
// `ranks` micro-batches at one of its stages, as much memory as 1F1B needs on its first rank. With
// forwards, input gradients and weight gradients of equal length, and at least 2 x `ranks` - 1
// micro-batches, no rank waits between its first action and its last. Any number of micro-batches
// can be scheduled.
Schedule ZeroBubbleVSchedule(int ranks, int micro_batches);

// DualPipeV (DeepSeek-AI, DualPipe's repository, 2025): DualPipe (DeepSeek-V3 Technical Report,
// 2024) cut in half, so that no rank holds parameters twice. Most of the time a forward at one
// stage of a rank alternates with a whole backward at the other. Each rank keeps the activations of
// at most 2 `ranks` + 1 micro-batches at one of its stages. InvalidArgument unless there are at
// least twice as many micro-batches as ranks.
absl::StatusOr<Schedule> DualPipeVSchedule(int ranks, int micro_batches);

// By name: layerwise, gpipe, 1f1b, interleaved_1f1b, zb_h1, zb_v, dualpipe_v. NotFound with the
// names that there are; InvalidArgument if the schedule cannot have this number of stages or
// micro-batches.
absl::StatusOr<Schedule> MakeSchedule(const std::string& name, int ranks, int stages_a_rank,
                                      int micro_batches);
std::vector<std::string> ScheduleNames();

// Stages on each rank where nobody says how many: 2 for the V-shaped schedules, which have no other
// number, else 1.
int DefaultStagesPerRank(const std::string& name);

// The largest stage or micro-batch in a CSV file: a typing error should not fill the memory.
inline constexpr int kLargestInCsv = 999;

// One row a rank, one cell an action, each with its stage: "0F0,0F1,0B0,0B1".
std::string ScheduleToCsv(const Schedule& schedule);
// InvalidArgument names row and cell that cannot be read. What the schedule says is not checked.
absl::StatusOr<Schedule> ScheduleFromCsv(const std::string& csv, const std::string& name);

}  // namespace lockstep
