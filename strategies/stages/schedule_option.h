#pragma once

#include "core/config/config_reader.h"
#include "core/config/settings.h"
#include "core/layout/model_layout.h"
#include "strategies/schedules/schedule.h"

namespace lockstep {

// Reads which stage works on what, and when, from the table [pipeline] (docs/configuration.md).
// Backwards in another order than that of the micro-batches are refused: the bits are those of
// `single`.
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
