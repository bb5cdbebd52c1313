#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/config/command_line.h"
#include "core/config/config.h"
#include "core/config/settings.h"
#include "core/data/dataset.h"
#include "core/data/sampler.h"
#include "core/nn/model.h"
#include "core/report/run_description.h"
#include "core/run/rank_device.h"
#include "core/run/strategy.h"
#include "core/tensor/device.h"

namespace lockstep {

// Builds the model that the table [model] describes, for the inputs and targets of a data set.
// Reports every mistake in the table.
using ModelFactory = std::function<absl::StatusOr<Model>(const Config&, const Dataset&)>;

// A run, fully decided and checked, before any rank starts. Ranks share it and change nothing in
// it.
struct TrainingRun {
  Config config;
  std::string workload;  // the configuration's `name`
  Settings settings;
  StrategyDefinition strategy;
  ModelFactory make_model;  // prepared for the strategy; has succeeded once for this configuration
  std::shared_ptr<const Dataset> dataset;
  std::shared_ptr<const Sampler> sampler;
  // Elements of the whole model's parameters, and of those that are trained.
  int64_t parameters = 0, trained_parameters = 0;
  DeviceType device = DeviceType::kCpu;  // that ranks compute on
  std::shared_ptr<RankDevices> devices;
  std::string out;  // run directory
  bool resume = false;

  std::string checkpoints() const;  // their folder
};

// What reports say about the run.
RunDescription Describe(const TrainingRun& run);

// A rank's strategy; `model` is what run.make_model made for it, `profiles` are the same on all
// ranks (ProfilesOfRun). Throws StatusException.
std::unique_ptr<Strategy> MakeStrategy(const TrainingRun& run, Rank& rank, Model model,
                                       std::vector<BlockProfile> profiles);

// What must be equal between a run and a checkpoint that it goes on from: the table [model], but
// for what it started from, and what [lora] says of what adapters compute.
std::string ModelFingerprint(const Config& config);

// Which of a run's ranks prepare it here.
struct RunPlace {
  // Whether rank 0 is among them, which makes the run directory.
  bool has_first_rank = true;
  // How many of them are processes on this machine, where this one is number `own_number` of them;
  // 0: all are threads of this process.
  int processes = 0;
  int own_number = 0;
};

// Reads and checks everything that a command line names: configuration, data, model. `record` notes
// the keys of the configuration that are asked for.
absl::StatusOr<TrainingRun> CheckRun(const CommandLine& command_line,
                                     const StrategyDefinition& strategy,
                                     const ModelFactory& make_model, const RunPlace& place = {},
                                     ConfigRecord* record = nullptr);

// CheckRun, and makes the run directory; one that holds an earlier run is set aside as <out>.1,
// <out>.2, ... unless that run is to be resumed.
absl::StatusOr<TrainingRun> PrepareRun(const CommandLine& command_line,
                                       const StrategyDefinition& strategy,
                                       const ModelFactory& make_model, const RunPlace& place = {});

// Leaves the error of a run in its directory (core/report/error_file.h), or if it was not prepared
// (`run` is an error) in the one that the command line names, if any. Where a finished run was to
// be resumed, nothing is touched.
void LeaveError(const CommandLine& command_line, const absl::StatusOr<TrainingRun>& run,
                const absl::Status& error);

}  // namespace lockstep
