#pragma once

#include "core/config/config_reader.h"
#include "core/config/settings.h"
#include "strategies/schedules/schedule.h"
#include "strategies/stages/checkpointing.h"

namespace lockstep {

// Reads which stage works on what, and when, from the table [pipeline]:
//
//   schedule ("1f1b")   gpipe, 1f1b, interleaved_1f1b, zb_h1, zb_v, dualpipe_v or layerwise
//                       (schedules.h, v_shaped.h). Backwards in another order than that of the
//                       micro-batches are refused: the bits are those of `single`.
//   stages_per_rank (1) more with interleaved_1f1b; 2, and no other number, with zb_v and
//                       dualpipe_v
//   schedule_file       instead of both, a CSV file as tools/schedule writes it
//
// A schedule that cannot be made, is not valid, or is for other ranks or micro-batches than the
// settings, is a problem of the reader.
Schedule ReadSchedule(ConfigReader& reader, const Settings& settings);

// Reads the key micro_batches of the table [recompute].
Checkpointing ReadCheckpointing(ConfigReader& reader);

}  // namespace lockstep
