#include "strategies/zero1/zero1.h"

#include "strategies/data_parallel/sharded.h"
#include "strategies/engine/engine.h"
#include "strategies/schedules/schedules.h"

namespace lockstep {

StrategyDefinition Zero1Strategy() {
  return EngineStrategy("zero1", Stages::kOne, [](const Config&, const Settings& settings) {
    EngineOptions options;
    options.schedule = OneStageSchedule(settings.cut.micro_batches);
    options.make_data_parallel = MakeSharded({.divided = Divided::kOptimizerState});
    return options;
  });
}

}  // namespace lockstep
