#include "strategies/fsdp/fsdp.h"

#include "core/base/status.h"
#include "strategies/fsdp/options.h"
#include "strategies/fsdp_pipe/sharded_part.h"
#include "strategies/pipeline/pipeline.h"
#include "strategies/schedules/schedules.h"

namespace lockstep {
namespace {

absl::StatusOr<PipelineOptions> ReadOptions(const Config& config, const Settings& settings) {
  LS_ASSIGN_OR_RETURN(const FsdpOptions fsdp, ReadFsdpOptions(config, settings));
  PipelineOptions options;
  options.schedule = OneStageSchedule(settings.cut.micro_batches);
  options.make_part =
      MakeShardedPart({.unshard = Unshard::kPass, .neighbours = fsdp.neighbours});
  return options;
}

}  // namespace

StrategyDefinition FsdpStrategy() {
  return PipelineStrategy("fsdp", {MeshAxis::kReplicas, MeshAxis::kDp, MeshAxis::kTp},
                          ReadOptions);
}

}  // namespace lockstep
