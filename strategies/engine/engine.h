#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "core/config/config.h"
#include "core/config/settings.h"
#include "core/run/strategy.h"
#include "strategies/data_parallel/data_parallel.h"
#include "strategies/recompute/policy.h"
#include "strategies/schedules/schedule.h"
#include "strategies/stages/balance_option.h"

namespace lockstep {

// The mechanisms that a strategy composes. Tensor parallelism needs no entry: it follows from
// mesh.tp and the table [tp].
struct EngineOptions {
  // Accepted by Validate, for mesh.pp ranks and the micro-batches of the settings. A strategy
  // without a pipeline has OneStageSchedule.
  Schedule schedule;
  // What the strategy sets of it is the default of [recompute]; EngineStrategy reads the table.
  RecomputePolicy recompute = {};
  BalanceOption balance = {};
  DataParallelMaker make_data_parallel = nullptr;  // MakeReplicated or MakeSharded
};

// Whether a strategy divides the blocks of a model into stages, along mesh.pp.
enum class Stages { kOne, kSeveral };

// Makes a strategy of the engine: the blocks of the model are divided into stages along mesh.pp,
// which run by a schedule; ranks along mesh.replicas and mesh.dp train the same stages on different
// shards of the batch; ranks along mesh.tp compute layers together.
//
// `name` is also the name of the strategy's own table in the configuration, which `read_own` reads
// and checks.
StrategyDefinition EngineStrategy(
    const std::string& name, Stages stages,
    std::function<absl::StatusOr<EngineOptions>(const Config&, const Settings&)> read_own);

}  // namespace lockstep
