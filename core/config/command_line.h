#pragma once

#include <string>
#include <vector>

#include "core/tensor/device.h"

namespace lockstep {

// What a strategy binary was asked on its command line.
struct CommandLine {
  std::vector<std::string> configs;      // --config FILE, later ones win
  std::vector<std::string> assignments;  // --set key=value, after all files
  std::string out;                       // --out DIR; empty: chosen from the workload's name
  std::string data;                      // --data DIR, else LOCKSTEP_DATA; may be empty
  DeviceType device = DeviceType::kCpu;  // --device cpu|cuda
  bool resume = false;                   // --resume
  bool elastic = false;                  // --elastic
  std::string elastic_prefer = {};       // --elastic_prefer "ddp dp=2; single"
  // --allow_change KEY: what a resumed run may have other than the run before.
  std::vector<std::string> allowed_changes = {};
  bool help = false;          // --help
  bool print_config = false;  // --print_config
  bool dry_run = false;       // --dry_run
};

}  // namespace lockstep
