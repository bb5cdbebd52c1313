#pragma once

#include "core/config/config_reader.h"
#include "core/config/settings.h"
#include "strategies/schedules/schedule.h"
#include "strategies/stages/checkpointing.h"

namespace lockstep {

// Options of strategies that run schedules; gpipe.h says what they mean. ReadSchedule has the keys
// schedule, schedule_file and stages_per_rank: one that cannot be made, is not valid, or is for
// other ranks or micro-batches than the settings, is a problem of the reader. ReadCheckpointing has
// the key checkpoint.
Schedule ReadSchedule(ConfigReader& reader, const Settings& settings);
Checkpointing ReadCheckpointing(ConfigReader& reader);

}  // namespace lockstep
