#pragma once

#include "absl/status/status.h"

namespace lockstep {

// The exit code of ranks that are processes where a rank was lost, or something else failed that
// may go well when it is tried again (a link, a GPU, a bit): "service unavailable" of sysexits.h.
// --resume goes on, and //tools/launch does so by itself.
inline constexpr int kRankLostExitCode = 69;

// 1 where somebody has to change something before a run can go well: its configuration, its data,
// the room on a disk or in memory. kRankLostExitCode for all other errors.
int ExitCodeOfFailure(const absl::Status& error);

}  // namespace lockstep
