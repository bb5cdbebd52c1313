#include "strategies/gpipe/gpipe.h"

#include <utility>

#include "core/base/status.h"
#include "core/config/config_reader.h"
#include "strategies/data_parallel/replicated.h"
#include "strategies/engine/engine.h"
#include "strategies/stages/balance_option.h"
#include "strategies/stages/schedule_option.h"

namespace lockstep {
namespace {

absl::StatusOr<EngineOptions> ReadOptions(const Config& config, const Settings& settings) {
  ConfigReader reader(config.Table("gpipe"));
  EngineOptions options = {.schedule = ReadSchedule(reader, settings),
                           .recompute = {.micro_batches = Checkpointing::kExceptLast},
                           .balance = ReadBalance(reader),
                           .make_data_parallel = MakeReplicated(ReadBucketLimits(reader))};
  LS_RETURN_IF_ERROR(reader.Finish());
  return options;
}

}  // namespace

StrategyDefinition GPipeStrategy() {
  return EngineStrategy("gpipe", Stages::kSeveral, ReadOptions);
}

}  // namespace lockstep
