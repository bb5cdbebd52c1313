#include "strategies/zero2/zero2.h"

#include "strategies/data_parallel/sharded.h"
#include "strategies/engine/engine.h"
#include "strategies/schedules/schedules.h"

namespace lockstep {

StrategyDefinition Zero2Strategy() {
  return EngineStrategy("zero2", Stages::kOne, [](const Config&, const Settings& settings) {
    EngineOptions options;
    options.schedule = OneStageSchedule(settings.cut.micro_batches);
    options.make_data_parallel = MakeSharded({.divided = Divided::kGradients});
    return options;
  });
}

}  // namespace lockstep
