#pragma once

#include <string>

#include "tools/experiment/run_record.h"

namespace lockstep {

// The loss scale of a run over its steps as one line of block characters, each an eighth of the way
// from the lowest to the highest power of two, with both ends and the steps that were skipped:
//
//   65536 ▇▇██▇▆▆ 32768, lowest 16384, highest 131072; skipped 2 steps: 812, 815
//
// Empty where losses are not scaled.
std::string LossScaleLine(const RunRecord& run);

}  // namespace lockstep
