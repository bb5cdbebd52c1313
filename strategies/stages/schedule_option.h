#pragma once

#include "core/config/config_reader.h"
#include "core/config/settings.h"
#include "strategies/schedules/schedule.h"

namespace lockstep {

// Reads the keys schedule, schedule_file and stages_per_rank of strategies that run schedules;
// gpipe.h says what they mean. A schedule that cannot be made, is not valid, or is for other ranks
// or micro-batches than the settings, is a problem of the reader.
Schedule ReadSchedule(ConfigReader& reader, const Settings& settings);

}  // namespace lockstep
