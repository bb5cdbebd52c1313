#include "strategies/gpipe/gpipe.h"

#include <utility>

#include "core/base/status.h"
#include "core/config/config_reader.h"
#include "strategies/pipeline/options.h"
#include "strategies/pipeline/pipeline.h"
#include "strategies/pipeline/replicated_part.h"
#include "strategies/stages/balance_option.h"

namespace lockstep {
namespace {

absl::StatusOr<PipelineOptions> ReadOptions(const Config& config, const Settings& settings) {
  ConfigReader reader(config.Table("gpipe"));
  PipelineOptions options = {.schedule = ReadSchedule(reader, settings),
                             .checkpointing = ReadCheckpointing(reader),
                             .balance = ReadBalance(reader),
                             .make_part = MakeReplicatedPart(ReadBucketLimits(reader))};
  LS_RETURN_IF_ERROR(reader.Finish());
  return options;
}

}  // namespace

StrategyDefinition GPipeStrategy() {
  return PipelineStrategy("gpipe", {MeshAxis::kPp, MeshAxis::kDp, MeshAxis::kTp}, ReadOptions);
}

}  // namespace lockstep
