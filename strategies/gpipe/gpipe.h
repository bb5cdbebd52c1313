#pragma once

#include "core/run/strategy.h"

namespace lockstep {

// Pipeline parallel: the model's blocks are cut into stages on the ranks of the pp axis, through
// which the micro-batches of a step flow one after another (Huang et al., "GPipe", NeurIPS 2019).
// Which stage works on what, and when, says a schedule; transfers run while stages compute.
//
// With dp ranks as well, each is one of pp ranks that hold the model together, as in `layerwise`;
// with tp ranks, layers are divided as in `tp`. The bits are those of `single` (with tp: of `tp`)
// with as many shards and micro-batches, for every schedule: those that run backwards in another
// order than that of the micro-batches are refused.
//
// Options, table [gpipe] (and [tp], see there; [recompute] has micro_batches = "except_last"):
//
// schedule ("gpipe"): gpipe, 1f1b, interleaved_1f1b, zb_h1, zb_v, dualpipe_v or layerwise
// (schedules.h, v_shaped.h).
// stages_per_rank (1): more with interleaved_1f1b; 2, and no other number, with zb_v and
// dualpipe_v. schedule_file: instead of both, a CSV file as tools/schedule writes it.
//
// balance ("cost"): how many blocks each stage has, as [n1, n2, ...]; or what is evened out among
// them: cost, time or size, as in `layerwise`.
//
// first_bucket_bytes (1 MiB), bucket_bytes (25 MiB): those of `ddp`.
StrategyDefinition GPipeStrategy();

}  // namespace lockstep
