#include "strategies/tp/tp.h"

#include "strategies/data_parallel/replicated.h"
#include "strategies/engine/engine.h"
#include "strategies/schedules/schedules.h"

namespace lockstep {

StrategyDefinition TpStrategy() {
  return EngineStrategy("tp", Stages::kOne, [](const Config&, const Settings& settings) {
    EngineOptions options;
    options.schedule = OneStageSchedule(settings.cut.micro_batches);
    options.make_data_parallel = MakeReplicated(BucketLimits());
    return options;
  });
}

}  // namespace lockstep
