#pragma once

#include "absl/status/statusor.h"
#include "core/config/config.h"
#include "core/config/cut_settings.h"
#include "core/config/settings.h"
#include "core/layout/model_layout.h"
#include "strategies/data_parallel/data_parallel.h"
#include "strategies/schedules/schedule.h"

namespace lockstep {

// Reads the table [data_parallel]: what data-parallel ranks divide, and how gradients are summed.
//
//   shard ("none")     what ranks along mesh.dp divide among them: nothing (DDP), or the
//                      "optimizer" state (ZeRO-1), and "gradients" (ZeRO-2), and "parameters"
//                      (ZeRO-3, FSDP), block by block
//
// With shard = "none":
//
//   first_bucket_bytes (1 MiB), bucket_bytes (25 MiB)   gradients that are all-reduced together;
//                      see PlanBuckets
//
// With shard = "parameters":
//
//   unshard ("micro_batch")  how often parameters are gathered. "micro_batch": a block at a time,
//                      for each forward and each backward, with the next block on its way; "step":
//                      for a stage's first micro-batch, and they stay until its last. Schedules
//                      that halve backwards need "step".
//   reshard (true)     what a rank keeps of a block between its forward and its backward: its shard
//                      (true), the whole (false, which saves a third of the traffic), or, for a
//                      number g of ranks that divides mesh.dp, one of g parts, so that the gather
//                      for backward stays within groups of g neighbouring ranks. It is
//                      reshard_after_forward of PyTorch's fully_shard. Not beside unshard = "step",
//                      which keeps all.
//   accumulate ("whole")  how a rank keeps the gradients of a shard of the batch. "whole": in full
//                      until the shard ends, and then summed over the ranks. "shards": summed over
//                      the ranks behind each backward, so that a rank never holds more than a
//                      block's gradients in full. A shard's micro-batches are added up before its
//                      gradient is added to other shards', so "shards" takes cut.micro_batches = 1,
//                      where both are the same.
//
// Where gradients are divided, ranks hold the shards of the batch in strides (AssignmentOf).
// InvalidArgument with all problems; a key that the choice of `shard` leaves without a meaning is
// one.
absl::StatusOr<DataParallelMaker> ReadDataParallel(const Config& config, const Settings& settings,
                                                   const Schedule& schedule);

// What the table says is divided; nothing, where it says what is no choice.
Divided ReadDivided(const Config& config);

// Who trains which shards of the batch where so much is divided.
ShardAssignment AssignmentOf(Divided divided);

}  // namespace lockstep
