#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/config/config.h"
#include "core/config/cut_settings.h"
#include "core/config/settings.h"
#include "strategies/data_parallel/data_parallel.h"
#include "strategies/recompute/policy.h"
#include "strategies/schedules/schedule.h"
#include "strategies/stages/balance_option.h"

namespace lockstep {

// The mechanisms that a run composes. Tensor parallelism needs no entry: it follows from mesh.tp
// and the table [tensor_parallel].
struct EngineOptions {
  Schedule schedule;  // accepted by Validate, for mesh.pp ranks; see ReadSchedule
  BalanceOption balance;
  RecomputePolicy recompute;
  DataParallelMaker make_data_parallel;
  ShardAssignment shards = ShardAssignment::kConsecutive;
};

// The tables of the engine's mechanisms.
std::vector<std::string> EngineTables();

// Reads them all, and checks them against the mesh and the cut. InvalidArgument with all problems.
absl::StatusOr<EngineOptions> ReadEngineOptions(const Config& config, const Settings& settings);

}  // namespace lockstep
