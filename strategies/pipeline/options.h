#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/train/config.h"
#include "core/train/config_reader.h"
#include "core/train/settings.h"
#include "strategies/gpipe/schedule.h"
#include "strategies/pipeline/checkpointing.h"

namespace lockstep {

// What a table of the configuration says about a pipeline.
struct ScheduleOptions {
  Schedule schedule;
  std::vector<int64_t> balance;  // empty: by cost
  Checkpointing checkpointing = Checkpointing::kExceptLast;
};

// Reads the keys schedule, schedule_file, stages_per_rank, balance and checkpoint; see gpipe.h for
// what they mean. Without a schedule it is `usual`. A schedule that cannot be made, is not valid,
// or is for other ranks or micro-batches than the settings, is a problem of the reader.
ScheduleOptions ReadScheduleOptions(ConfigReader& reader, const Settings& settings,
                                    const std::string& usual);

}  // namespace lockstep
