#include "strategies/tp/tp.h"

#include "strategies/pipeline/pipeline.h"
#include "strategies/pipeline/replicated_part.h"
#include "strategies/schedules/schedules.h"

namespace lockstep {

StrategyDefinition TpStrategy() {
  return PipelineStrategy("tp", {MeshAxis::kDp, MeshAxis::kTp},
                          [](const Config&, const Settings& settings) {
                            PipelineOptions options;
                            options.schedule = OneStageSchedule(settings.cut.micro_batches);
                            options.make_part = MakeReplicatedPart(BucketLimits());
                            return options;
                          });
}

}  // namespace lockstep
