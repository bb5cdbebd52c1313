#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/comm/mesh.h"
#include "core/kernels/kernels.h"
#include "core/nn/published.h"
#include "core/report/block_profile.h"
#include "core/report/step_timer.h"
#include "core/report/trace.h"
#include "core/run/leg/training_run.h"
#include "core/run/record/run_probe.h"
#include "core/run/strategy/rank.h"
#include "core/run/strategy/strategy.h"

namespace lockstep {

// What the model that went to the strategy had to say of where its parameters start.
struct InitialWeights {
  std::string path;  // empty: from their Init
  PublishedNames names;
};

// What a rank of a run keeps from leg to leg.
struct RankTools {
  Communicator& world;  // all ranks of the run
  Kernels& kernels;
  StepTimer& timer;
  Trace& trace;
};

// What a rank has for one leg of a run, or for a run without legs: its mesh and its strategy. Ranks
// beyond the leg's mesh are idle, and have none. Members throw StatusException as strategies do.
class RankInLeg {
 public:
  // Called by all ranks of the world; null on those that will be idle. Leg and tools outlive it.
  // `profiles`: of the blocks, where they were measured before; null: they are measured if the
  // strategy asks for them.
  static absl::StatusOr<std::unique_ptr<RankInLeg>> Make(
      const TrainingRun& leg, const RankTools& tools,
      const std::vector<BlockProfile>* profiles = nullptr);

  const TrainingRun& leg() const { return leg_; }
  Rank& rank() { return rank_; }
  Communicator& ranks() { return mesh_.world(); }  // of the leg
  Strategy& strategy() { return *strategy_; }
  const InitialWeights& initial() const { return initial_; }
  // The names of the model's blocks, in their order.
  const std::vector<std::string>& blocks() const { return blocks_; }
  // By block, if the strategy asked for them.
  const std::vector<BlockProfile>& profiles() const { return profiles_; }

 private:
  RankInLeg(const TrainingRun& leg, const RankTools& tools, std::unique_ptr<Communicator> own,
            Mesh mesh, Model model, const std::vector<BlockProfile>* profiles);

  const TrainingRun& leg_;
  const std::unique_ptr<Communicator> own_;  // null: the leg's ranks are the world
  Mesh mesh_;
  Rank rank_;
  InitialWeights initial_;
  std::vector<std::string> blocks_;
  std::optional<RunProbe> probe_;
  std::vector<BlockProfile> profiles_;
  std::unique_ptr<Strategy> strategy_;
};

}  // namespace lockstep
