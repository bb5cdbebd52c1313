#include "strategies/fsdp/fsdp.h"

#include "core/base/status.h"
#include "strategies/data_parallel/sharded.h"
#include "strategies/engine/engine.h"
#include "strategies/fsdp/options.h"
#include "strategies/schedules/schedules.h"

namespace lockstep {
namespace {

absl::StatusOr<EngineOptions> ReadOptions(const Config& config, const Settings& settings) {
  LS_ASSIGN_OR_RETURN(const FsdpOptions fsdp, ReadFsdpOptions(config, settings));
  EngineOptions options;
  options.schedule = OneStageSchedule(settings.cut.micro_batches);
  options.make_data_parallel = MakeSharded({.neighbours = fsdp.neighbours});
  return options;
}

}  // namespace

StrategyDefinition FsdpStrategy() { return EngineStrategy("fsdp", Stages::kOne, ReadOptions); }

}  // namespace lockstep
