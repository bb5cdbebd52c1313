// Runs that bits flip in: small models on several layouts of three ranks.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/run/leg/run_place.h"
#include "core/run/strategy/strategy.h"
#include "strategies/testing/flipping.h"
#include "strategies/testing/flipping_calls.h"

namespace lockstep {

inline constexpr int kFlipRanks = 3;
inline constexpr int64_t kFlipSteps = 3;  // of a run whose assignments say nothing else

// How many tensors of a target a step has, by rank.
using TensorCounts = std::shared_ptr<uint64_t[]>;

struct FlipLayout {
  StrategyDefinition strategy;
  std::vector<std::string> mesh;  // assignments
  // Whether each of the three ranks holds the whole state. Then three copies exist of the state,
  // and of each rank's work on it: the step and two repetitions.
  bool has_copies = false;
  // What an undisturbed step has; TrainUndisturbed counts it.
  TensorCounts passes = std::make_shared<uint64_t[]>(kFlipRanks);
  TensorCounts gradients = std::make_shared<uint64_t[]>(kFlipRanks);
  TensorCounts sent = std::make_shared<uint64_t[]>(kFlipRanks);
  TensorCounts received = std::make_shared<uint64_t[]>(kFlipRanks);

  // Null: of a target that is not counted.
  TensorCounts CountsOf(Flip::Target target) const;
  // How many tensors a flip of the target may choose from on a rank; 0: the rank has none.
  uint64_t TensorsOf(Flip::Target target, int rank) const;
};

// ddp, fsdp, replicas and a pipeline. What is counted in them is shared by copies of a layout.
std::vector<FlipLayout> FlipLayouts();

// Losses and weights of a run, or how it ended.
struct FlipOutcome {
  absl::Status status;
  std::vector<double> losses = {};
  std::string hash = "";

  // Whether both came to the same bits.
  bool SameAs(const FlipOutcome& other) const;
};

enum class AfterRun {
  kRemoveCopies,  // in memory, from which a run that was stopped would go on
  kLeaveCopies,
};

struct FlipRun {
  StrategyDefinition strategy;
  std::vector<std::string> assignments;        // over the workload: the mesh and all else
  std::shared_ptr<CallFlips> calls = nullptr;  // told of calls; null: nobody is
  std::string out = "out";                     // in the folder; what it holds is removed
  bool resume = false;                         // goes on with what `out` holds instead
  AfterRun after = AfterRun::kRemoveCopies;
  PlaceVisitor visit = nullptr;  // told where ranks are; null: nobody is
};

// Writes the runs' workload into `folder`.
absl::Status PrepareFlipRuns(const std::string& folder);
// Trains in `folder`.
FlipOutcome Train(const std::string& folder, const FlipRun& run);
// Trains a layout where nothing flips, and counts its tensors.
FlipOutcome TrainUndisturbed(const std::string& folder, const FlipLayout& layout);

// The ranks that the message of a run with wrong bits names as wrong; empty where it only says
// where the bits were seen first, or that several ranks may have been wrong.
std::vector<int> AccusedRanks(const std::string& message);

}  // namespace lockstep
