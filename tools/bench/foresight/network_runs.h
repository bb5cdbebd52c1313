#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tools/bench/torch_peer.h"
#include "tools/report/report.h"

namespace lockstep {

struct NetworkRounds {
  std::string strategies;  // folder with the presets' programs
  std::string script;      // two_hosts.sh
  std::string python;      // an interpreter with PyTorch, or empty
  std::string peers;       // folder with PyTorch's scripts
  int steps = 12;          // of each run
  int count = 2;
};

// A GPT on two hosts that 1 or 10 Gbit/s join, under several presets: each step's time beside the
// prediction in its own summary, and beside PyTorch's over gloo. This machine was calibrated; of
// the network the predictions know what tc(8) lets through. Needs root.
//
// A run's time is the median of its steps; of several rounds the fastest counts.
absl::StatusOr<Table> NetworkRuns(const NetworkRounds& rounds);

}  // namespace lockstep
