#include "tools/bench/torch_peer.h"

#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/base/subprocess.h"
#include "nlohmann/json.hpp"
#include "tools/experiment/paths.h"

namespace lockstep {
namespace {

bool CanImportTorch(const std::string& python) {
  if (python.empty()) return false;
  const auto result = RunProcess({.arguments = {python, "-c", "import torch"}});
  return result.ok() && result->ok();
}

}  // namespace

std::optional<TorchPeer> FindTorchPeer(const std::string& python, const std::string& script) {
  const TorchPeer peer = {.python = FindOnPath(python), .script = script};
  std::string reason;
  if (script.empty() || !PathExists(script)) {
    reason = absl::StrCat("no script '", script, "' (--torch_peer)");
  } else if (!CanImportTorch(peer.python)) {
    reason = absl::StrCat("'", python, "' cannot import torch (--python)");
  } else {
    return peer;
  }
  std::printf("PyTorch is left out: %s\n", reason.c_str());
  return std::nullopt;
}

absl::StatusOr<double> RunTorchPeer(const TorchPeer& peer, const std::string& arguments,
                                    int ranks) {
  std::vector<std::string> command = {peer.python};
  if (ranks > 1) {
    command.insert(command.end(), {"-m", "torch.distributed.run", "--standalone",
                                   "--nproc_per_node", absl::StrCat(ranks)});
  }
  command.push_back(peer.script);
  return RunTorchCommand(std::move(command), arguments);
}

absl::StatusOr<double> RunTorchCommand(std::vector<std::string> command,
                                       const std::string& arguments) {
  for (const absl::string_view word : absl::StrSplit(arguments, ' ', absl::SkipEmpty())) {
    command.emplace_back(word);
  }
  LS_ASSIGN_OR_RETURN(const ProcessResult result, RunProcess({.arguments = command}));
  if (result.interrupted) return absl::CancelledError("interrupted");
  const auto json = nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  if (!result.ok() || !json.contains("model_gflops_per_s")) {
    std::fprintf(stderr, "PyTorch's side has failed; to see why, run: %s\n",
                 absl::StrJoin(command, " ").c_str());
    return 0;
  }
  return json["model_gflops_per_s"].get<double>();
}

}  // namespace lockstep
