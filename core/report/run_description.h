#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/config/config.h"
#include "core/config/settings.h"
#include "core/data/dataset.h"
#include "core/tensor/device.h"

namespace lockstep {

// What the reports of a run say about the run itself. All of it is known before any rank starts.
struct RunDescription {
  Config config;  // in effect; of a run with legs, this leg's
  // For a run with legs, what its config.toml says: the configuration that all legs share, and the
  // list of them. None: a run without legs, whose config.toml says `config`.
  std::optional<Config> config_of_legs = std::nullopt;
  std::string workload;  // the configuration's `name`
  std::string strategy_name;
  Settings settings;
  std::shared_ptr<const Dataset> dataset;
  DeviceType device = DeviceType::kCpu;  // that ranks compute on
  // Elements of the whole model's parameters, and of those that are trained.
  int64_t parameters = 0, trained_parameters = 0;
  std::string out;  // run directory
  // Whether it says on the standard error stream what it is and, also where there is no terminal,
  // how it goes on.
  bool speaks = false;

  const Config& written_config() const { return config_of_legs ? *config_of_legs : config; }
  std::string checkpoints() const { return out + "/checkpoints"; }  // their folder

  // What speed is counted in: "tokens" of language models, else "samples".
  std::string unit() const { return counts_tokens() ? "tokens" : "samples"; }
  // Units of a step, over all ranks.
  int64_t units_per_step() const {
    return settings.batch.size * (counts_tokens() ? dataset->target_shape().elements() : 1);
  }

 private:
  bool counts_tokens() const { return dataset->task() == Task::kLanguageModel; }
};

}  // namespace lockstep
