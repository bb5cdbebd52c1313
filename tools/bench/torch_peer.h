#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep {

// How the PyTorch side of a comparison is started.
struct TorchPeer {
  std::string python;  // an interpreter that can import torch
  std::string script;  // the script that trains the same work and prints one line of JSON
};

// The peer that the options name, if its script is there and its Python has PyTorch; else nothing,
// and a line on the standard output that says why.
std::optional<TorchPeer> FindTorchPeer(const std::string& python, const std::string& script);

// Runs the script with `arguments`, several ranks by torchrun, and returns "model_gflops_per_s",
// over all ranks, of the JSON that it prints. Where there is none, returns 0 and says on the
// standard error how to see why. Cancelled: by Ctrl-C.
absl::StatusOr<double> RunTorchPeer(const TorchPeer& peer, const std::string& arguments, int ranks);

// The same with all words of the command given, and `arguments` behind them.
absl::StatusOr<double> RunTorchCommand(std::vector<std::string> command,
                                       const std::string& arguments);

}  // namespace lockstep
