#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/config/config.h"
#include "core/config/settings.h"
#include "core/run/strategy.h"
#include "strategies/pipeline/checkpointing.h"
#include "strategies/pipeline/part.h"
#include "strategies/schedules/schedule.h"
#include "strategies/stages/balance_option.h"

namespace lockstep {

// What makes a pipeline out of a model.
struct PipelineOptions {
  Schedule schedule;  // accepted by Validate, for the mesh and the micro-batches of the settings
  Checkpointing checkpointing = Checkpointing::kNever;
  BalanceOption balance = {};
  PartMaker make_part = nullptr;  // MakeReplicatedPart, or another
};

// A strategy that trains a model whose blocks are divided among the ranks along pp, by a schedule;
// with shards of the batch along dp and replicas, which keep the stages as their part does; and
// with layers divided along tp. `axes`: those of the mesh that it may use. `read` reads its own
// table of the configuration, which is called as it is.
StrategyDefinition PipelineStrategy(
    const std::string& name, std::vector<MeshAxis> axes,
    std::function<absl::StatusOr<PipelineOptions>(const Config&, const Settings&)> read);

}  // namespace lockstep
