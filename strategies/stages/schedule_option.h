#pragma once

#include "core/config/config_reader.h"
#include "core/config/settings.h"
#include "core/layout/model_layout.h"
#include "strategies/schedules/schedule.h"

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
// It runs all micro-batches of a rank in one go, shard after shard of the batch. A schedule that
// halves backwards runs once for each shard where `divided` has the gradients of a block summed
// together: those of its biases come with the first half, of its weights with the second, and the
// next shard's must not begin between the two.
//
// A schedule that cannot be made, is not valid, or is for other ranks or micro-batches than the
// settings, is a problem of the reader.
Schedule ReadSchedule(ConfigReader& reader, const Settings& settings, Divided divided);

}  // namespace lockstep
