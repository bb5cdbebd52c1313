#include "strategies/layerwise/layerwise.h"

#include <utility>

#include "core/base/status.h"
#include "core/config/config_reader.h"
#include "strategies/data_parallel/replicated.h"
#include "strategies/engine/engine.h"
#include "strategies/schedules/schedules.h"
#include "strategies/stages/balance_option.h"

namespace lockstep {
namespace {

// A pipeline in which one stage works at a time.
absl::StatusOr<EngineOptions> ReadOptions(const Config& config, const Settings& settings) {
  ConfigReader reader(config.Table("layerwise"));
  EngineOptions options = {
      .schedule = LayerwiseSchedule(settings.mesh.pp, static_cast<int>(settings.cut.micro_batches)),
      .balance = ReadBalance(reader),
      .make_data_parallel = MakeReplicated(ReadBucketLimits(reader))};
  LS_RETURN_IF_ERROR(reader.Finish());
  return options;
}

}  // namespace

StrategyDefinition LayerwiseStrategy() {
  return EngineStrategy("layerwise", Stages::kSeveral, ReadOptions);
}

}  // namespace lockstep
