#include "strategies/ddp/ddp.h"

#include "core/base/status.h"
#include "core/config/config_reader.h"
#include "strategies/data_parallel/replicated.h"
#include "strategies/engine/engine.h"
#include "strategies/schedules/schedules.h"

namespace lockstep {
namespace {

absl::StatusOr<EngineOptions> ReadOptions(const Config& config, const Settings& settings) {
  ConfigReader reader(config.Table("ddp"));
  EngineOptions options;
  options.schedule = OneStageSchedule(settings.cut.micro_batches);
  options.make_data_parallel = MakeReplicated(ReadBucketLimits(reader));
  LS_RETURN_IF_ERROR(reader.Finish());
  return options;
}

}  // namespace

StrategyDefinition DdpStrategy() { return EngineStrategy("ddp", Stages::kOne, ReadOptions); }

}  // namespace lockstep
