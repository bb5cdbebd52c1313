#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/exact_sum.h"
#include "core/checkpoint/checkpoint.h"
#include "core/config/config.h"
#include "core/config/preset_keys.h"
#include "core/config/settings.h"
#include "core/data/dataset.h"
#include "core/layout/model_layout.h"
#include "core/nn/model.h"
#include "core/report/block_profile.h"
#include "core/report/cost_prediction.h"
#include "core/report/results.h"
#include "core/run/strategy/rank.h"

namespace lockstep {

// Hands out the rank's micro-batches of a step, in order.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // The next micro-batch. Throws StatusException when the data cannot be read.
  virtual Batch Next() = 0;
  // Called once a step, when all of its micro-batches are taken and their passes are queued, and
  // before the host waits for the step's loss and its gradients' norm: time to send the next step's
  // first batch to where it will be read. May wait for the data.
  virtual void FetchAhead() {}
};

// Sums over the targets of a batch that are not ignored.
struct EvaluationSums {
  ExactSum loss;
  int64_t correct = 0;  // classification: how often the largest logit was at the target
};

// One way to train a model on a mesh of ranks: one object a rank. Members throw StatusException for
// what comes from outside (no memory, a dead peer); the trainer turns it into a Status.
class Strategy {
 public:
  virtual ~Strategy() = default;

  // The micro-batches, by their index in the global batch, that this rank takes from the source in
  // each step, in their order; none where it needs no inputs and no targets.
  virtual std::vector<int64_t> micro_batches() const = 0;

  // Runs forward and backward for all of them, combines gradients, and updates the parameters.
  virtual StepResult TrainStep(int64_t step, BatchSource& batches) = 0;

  // Forward only, with the statistics of training; the sums are those of this rank's batch. Called
  // by all ranks together: those along pp have the same batch, and one of them has its sums; the
  // others return zeros.
  virtual EvaluationSums Evaluate(const Batch& batch) = 0;

  // Who holds what on every rank of the mesh.
  virtual const ModelLayout& layout() const = 0;
  // Everything that a checkpoint needs, in the same order on every rank: what the layout places on
  // this rank, and the optimizer's state.
  virtual std::vector<StateTensor> State() = 0;
  // State has been filled from a checkpoint: brings what follows from it up to date.
  virtual void Restored() = 0;

  virtual CostPrediction Predict() const = 0;

  // What rank 0 says before the first step; empty: nothing.
  virtual std::string Note() const { return ""; }
};

// What a strategy is made from.
struct StrategyInputs {
  Rank& rank;
  Model model;  // without memory
  // The model's tensors, split for mesh.tp ranks and divided for mesh.ep ranks.
  std::shared_ptr<const std::vector<ModelTensor>> tensors;
  const Settings& settings;
  int64_t targets_per_sample;
  bool packs_documents;                     // the data (Dataset::packs_documents)
  const Config& config;                     // for the tables of the strategy's mechanisms
  std::vector<BlockProfile> profiles = {};  // by block, if the strategy needs them
};

// A strategy as its page describes it.
struct StrategyDefinition {
  std::string name;
  PresetKeys keys = {};  // of the configuration that it fixes, and defaults of others
  // Tables of the configuration that belong to its mechanisms, beside those of all strategies.
  std::vector<std::string> tables = {};
  // Whether these tables are right, by themselves and beside the settings; called before ranks are
  // started.
  std::function<absl::Status(const Config&, const Settings&)> check =
      [](const Config&, const Settings&) { return absl::OkStatus(); };
  // Tells each model that is made for a run, before it has memory, what the configuration says of
  // its blocks.
  std::function<absl::Status(const Config&, Model&)> prepare_model = [](const Config&, Model&) {
    return absl::OkStatus();
  };
  // Whether it can train the model so; called after `check`, before ranks are started.
  std::function<absl::Status(const Config&, const Settings&, const Model&)> check_model =
      [](const Config&, const Settings&, const Model&) { return absl::OkStatus(); };
  // Whether `make` needs profiles of the blocks, which are then measured once, before a run.
  std::function<bool(const Config&, const Settings&)> needs_profiles =
      [](const Config&, const Settings&) { return false; };
  std::function<std::unique_ptr<Strategy>(StrategyInputs)> make;
};

}  // namespace lockstep
