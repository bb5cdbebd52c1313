#include "tools/bench/torch_peer.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

// Standard output of a shell command; nothing if it fails.
std::optional<std::string> Capture(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  std::string output;
  char buffer[4096];
  while (size_t count = std::fread(buffer, 1, sizeof(buffer), pipe)) output.append(buffer, count);
  if (pclose(pipe) != 0) return std::nullopt;
  return output;
}

std::string Quoted(const std::string& word) { return absl::StrCat("'", word, "'"); }

}  // namespace

std::optional<TorchPeer> FindTorchPeer(const std::string& python, const std::string& script) {
  std::string reason;
  if (script.empty() || !std::filesystem::exists(script)) {
    reason = absl::StrCat("no script '", script, "' (--torch_peer)");
  } else if (!Capture(absl::StrCat(Quoted(python), " -c 'import torch' 2>/dev/null"))) {
    reason = absl::StrCat("'", python, "' cannot import torch (--python)");
  } else {
    return TorchPeer{python, script};
  }
  std::printf("PyTorch is left out: %s\n", reason.c_str());
  return std::nullopt;
}

std::optional<double> RunTorchPeer(const TorchPeer& peer, const std::string& arguments, int ranks) {
  const std::string torchrun =
      ranks == 1 ? ""
                 : absl::StrCat("-m torch.distributed.run --standalone --nproc_per_node ", ranks);
  const std::string command =
      absl::StrCat(Quoted(peer.python), " ", torchrun, " ", Quoted(peer.script), " ", arguments);
  const auto output = Capture(command + " 2>/dev/null");
  const nlohmann::json json =
      nlohmann::json::parse(output.value_or(""), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.contains("model_gflops_per_s")) {
    std::fprintf(stderr, "PyTorch's side has failed; to see why, run: %s\n", command.c_str());
    return std::nullopt;
  }
  return json["model_gflops_per_s"].get<double>();
}

}  // namespace lockstep
