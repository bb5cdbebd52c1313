#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/checkpoint/machines.h"
#include "core/config/command_line.h"
#include "core/config/config.h"
#include "core/config/legs.h"
#include "core/data/dataset.h"
#include "core/data/sampler.h"
#include "core/nn/model.h"
#include "core/report/run_description.h"
#include "core/run/device/rank_device.h"
#include "core/run/directory/run_directory.h"
#include "core/run/directory/run_identity.h"
#include "core/run/leg/run_place.h"
#include "core/run/leg/run_tensors.h"
#include "core/run/stop/stop_request.h"
#include "core/run/strategy/strategy.h"

namespace lockstep {

// Builds the model that the table [model] describes, for the inputs and targets of a data set.
// Reports every mistake in the table.
using ModelFactory = std::function<absl::StatusOr<Model>(const Config&, const Dataset&)>;

// A run, fully decided and checked, before any rank starts. Ranks share it and change nothing in
// it.
struct TrainingRun : RunDescription {
  StrategyDefinition strategy;
  ModelFactory make_model;  // prepared for the strategy; has succeeded once for this configuration
  std::string
      model_fingerprint;  // of what make_model makes (core/run/directory/model_fingerprint.h)
  std::shared_ptr<RunTensors> tensors;  // of the model
  int64_t experts = 0;                  // of a layer of the model; 0: it has none
  std::shared_ptr<const Sampler> sampler;
  std::shared_ptr<RankDevices> devices;
  int64_t ranks_here = 1;  // on this machine
  RunKeys keys;            // empty where nothing is to be trained (CheckRun)
  std::vector<std::string> allowed_changes;
  Config given;  // as files and command line had it; empty in a run with legs
  std::shared_ptr<RunDirectory> directory;  // null where nothing is to be written (CheckRun)
  bool resume = false;
  bool are_processes = false;  // the ranks, instead of threads
  Machines machines;           // that processes are on; the first leg's count
  // A run may have legs (core/config/legs.h): this one ends with `end_step` steps behind it, and
  // `next` goes on with its state; null: this is the last leg, or the only one. The first leg
  // stands for the whole run: checkpoints, directory and reports are known by its keys.
  int64_t end_step = 0;
  std::shared_ptr<const TrainingRun> next = nullptr;
  std::shared_ptr<StopRequest> stop = std::make_shared<StopRequest>();
  PlaceVisitor visit = nullptr;  // told where ranks are; the first leg's counts. Null: nobody is
};

// The leg of a run that has step `step`, or else its last one.
const TrainingRun& LegAt(const TrainingRun& run, int64_t step);
const TrainingRun& LastLeg(const TrainingRun& run);
// How many ranks the largest mesh of a run's legs has.
int WorldSize(const TrainingRun& run);

// A rank's strategy; `model` is what run.make_model made for it, `profiles` are the same on all
// ranks (ProfilesOfRun). Throws StatusException.
std::unique_ptr<Strategy> MakeStrategy(const TrainingRun& run, Rank& rank, Model model,
                                       std::vector<BlockProfile> profiles);

// Reads and checks everything that a command line names: configuration, data, model. `here` says
// which ranks prepare the run, but for their number, which the configuration has. `record` notes
// the keys of the configuration that are asked for.
absl::StatusOr<TrainingRun> CheckRun(const CommandLine& command_line,
                                     const StrategyDefinition& strategy,
                                     const ModelFactory& make_model, RanksHere here = {},
                                     ConfigRecord* record = nullptr);

// CheckRun of the whole run: of each leg that begins before the last step, if the configuration
// names any. The first leg is returned, and `next` leads to the others. `strategies` are those that
// legs may name; InvalidArgument for others, and for legs whose meshes would cut the batch in
// different ways. `record` is of the first leg.
absl::StatusOr<TrainingRun> CheckWholeRun(const CommandLine& command_line,
                                          const StrategyDefinition& strategy,
                                          const ModelFactory& make_model, RanksHere here,
                                          const std::vector<StrategyDefinition>& strategies,
                                          ConfigRecord* record = nullptr);

// Gives a run that has not begun another dataset of the same shapes, and a sampler of it. Keys and
// steps stay those of the configured data. InvalidArgument for runs with legs, and where the
// dataset cannot be sampled as the run asks.
absl::Status ReplaceDataset(TrainingRun& run, std::shared_ptr<const Dataset> dataset);

// Refuses a run of more ranks than the threads of this machine should carry.
absl::Status CheckThreads(const TrainingRun& run);

// CheckWholeRun, and claims the run directory for the first rank
// (core/run/directory/run_directory.h). Nothing is written before the ranks have made their last
// checks (TrainRank).
absl::StatusOr<TrainingRun> PrepareRun(const CommandLine& command_line,
                                       const StrategyDefinition& strategy,
                                       const ModelFactory& make_model, RanksHere here = {},
                                       const std::vector<StrategyDefinition>& strategies = {});

// The run that goes on with `before`, which has no legs, as another formation: with its cut, in its
// directory, which stays claimed, and by the configuration files as `before` has read them.
// `command_line` is that of `before`; its `resume` says whether there is something to go on from.
// InvalidArgument where the formation does not divide the cut.
absl::StatusOr<TrainingRun> PrepareNext(const CommandLine& command_line, const Formation& formation,
                                        const ModelFactory& make_model,
                                        const std::vector<StrategyDefinition>& strategies,
                                        const TrainingRun& before);

// Refuses a run that cannot fit into this machine however it is divided, by its own count of bytes
// and before anything is allocated: together, the ranks here hold their share of each weight and
// each gradient once, and each of them a micro-batch. ResourceExhausted says what to lower. Ranks
// on GPUs are not judged. Each leg is judged by itself.
absl::Status CheckFits(const TrainingRun& run);

// The timeout that a command line asks for, in seconds, before anything else of it is checked; the
// default where it asks for none, or not rightly.
double TimeoutOf(const CommandLine& command_line);

// Leaves the error of a run in its directory (core/report/error_file.h), if the run has begun. If
// not, in the one that it, or the command line, names, where that is new: an earlier run is left as
// it is.
void LeaveError(const CommandLine& command_line, const absl::StatusOr<TrainingRun>& run,
                const absl::Status& error);

}  // namespace lockstep
