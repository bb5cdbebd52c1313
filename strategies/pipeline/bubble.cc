#include "strategies/pipeline/bubble.h"

#include <cstdint>
#include <vector>

#include "strategies/schedules/simulation.h"
#include "strategies/stages/balance.h"

namespace lockstep {

double BubbleFraction(const Model& model, const StagePlan& plan, const Schedule& schedule,
                      Checkpointing checkpointing, int rank) {
  const std::vector<int64_t> blocks = BlockCosts(model);
  const double forwards = MeanForwards(schedule.micro_batches, checkpointing);
  std::vector<StageCosts> costs;
  for (const BlockRange& stage : plan.stages) {
    double cost = 0;
    for (int64_t i = stage.begin; i < stage.end; ++i) cost += static_cast<double>(blocks[i]);
    costs.push_back({.forward = cost, .input_gradient = forwards * cost, .weight_gradient = cost});
  }
  const Simulation simulation = Simulate(schedule, costs);
  if (simulation.total == 0) return 0;
  double busy = 0;
  for (const Simulation::Timed& timed : simulation.ranks[rank]) busy += timed.end - timed.begin;
  return 1 - busy / simulation.total;
}

}  // namespace lockstep
