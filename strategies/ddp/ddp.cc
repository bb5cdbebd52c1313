#include "strategies/ddp/ddp.h"

#include "core/base/status.h"
#include "core/config/config_reader.h"
#include "strategies/pipeline/pipeline.h"
#include "strategies/pipeline/replicated_part.h"
#include "strategies/schedules/schedules.h"

namespace lockstep {
namespace {

absl::StatusOr<PipelineOptions> ReadOptions(const Config& config, const Settings& settings) {
  ConfigReader reader(config.Table("ddp"));
  PipelineOptions options;
  options.schedule = OneStageSchedule(settings.cut.micro_batches);
  options.make_part = MakeReplicatedPart(ReadBucketLimits(reader));
  LS_RETURN_IF_ERROR(reader.Finish());
  return options;
}

}  // namespace

StrategyDefinition DdpStrategy() { return PipelineStrategy("ddp", {MeshAxis::kDp}, ReadOptions); }

}  // namespace lockstep
