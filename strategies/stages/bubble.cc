#include "strategies/stages/bubble.h"

#include <cstdint>
#include <vector>

#include "strategies/schedules/simulation.h"
#include "strategies/stages/block_work.h"

namespace lockstep {

double BubbleFraction(const Model& model, const StagePlan& plan, const Schedule& schedule,
                      Checkpointing checkpointing, int rank) {
  const std::vector<BlockWork> blocks = WorkOfBlocks(model);
  // Beside the first one: what a backward computes again.
  const double again = MeanForwards(schedule.micro_batches, checkpointing) - 1;
  std::vector<StageCosts> costs;
  for (const BlockRange& stage : plan.stages) {
    StageCosts cost = {.forward = 0, .input_gradient = 0, .weight_gradient = 0};
    for (int64_t i = stage.begin; i < stage.end; ++i) {
      cost.forward += blocks[i].forward;
      cost.input_gradient += again * blocks[i].forward + blocks[i].input_gradient;
      cost.weight_gradient += blocks[i].weight_gradient;
    }
    costs.push_back(cost);
  }
  const Simulation simulation = Simulate(schedule, costs);
  if (simulation.total == 0) return 0;
  double busy = 0;
  for (const Simulation::Timed& timed : simulation.ranks[rank]) busy += timed.end - timed.begin;
  return 1 - busy / simulation.total;
}

}  // namespace lockstep
