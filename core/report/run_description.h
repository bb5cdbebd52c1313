#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/config/config.h"
#include "core/config/settings.h"
#include "core/tensor/device.h"

namespace lockstep {

// What the reports of a run say about the run itself. All of it is known before any rank starts.
struct RunDescription {
  std::string workload;  // the configuration's `name`
  std::string strategy;  // its name
  Config config;
  Settings settings;
  DeviceType device = DeviceType::kCpu;  // that ranks compute on
  // Elements of the whole model's parameters, and of those that are trained.
  int64_t parameters = 0, trained_parameters = 0;
  std::string unit;              // what speed is counted in: "samples" or "tokens"
  int64_t units_per_sample = 1;  // 1 for samples
  // What the data set states, in nats per token; nothing where it states none
  // (core/data/dataset.h).
  std::optional<double> entropy_rate, loss_floor;
  std::string out;          // run directory
  std::string checkpoints;  // the folder of its checkpoints
};

}  // namespace lockstep
