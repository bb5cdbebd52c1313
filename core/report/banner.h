#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/report/run_description.h"

namespace lockstep {

// What a run says before its first step, a few lines without the last line end:
//
//   gpt_markov under fsdp, mesh pp=1,dp=2,tp=1: 2 ranks on the CPU, 1 thread each
//     model  transformer of 809.2K parameters
//     data   markov (built in): source 0 of seed 0, ...
//     steps  500 of 64 samples (4.1K tokens)
//     out    runs/gpt_markov/fsdp
//
// A run that goes on, from `first_step` > 0, says from which checkpoint, which is `from`, and what
// has changed: `changes` are keys of the configuration that differ from those of the run before,
// whose values are `theirs`.
std::string Banner(const RunDescription& run, int64_t first_step, const std::string& from,
                   const std::vector<Config::Difference>& changes);

}  // namespace lockstep
