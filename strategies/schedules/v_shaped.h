#pragma once

#include "absl/status/statusor.h"
#include "strategies/schedules/schedule.h"

namespace lockstep {

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

}  // namespace lockstep
