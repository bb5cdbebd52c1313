#include "tools/bench/faults/fault_runs.h"

#include <signal.h>
#include <unistd.h>  // usleep

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "nlohmann/json.hpp"
#include "tools/launch/rank_processes.h"

namespace lockstep {
namespace {

constexpr char kUndisturbed[] = "undisturbed";

// Data of transformers, and how they learn it.
constexpr char kTokens[] = R"(
[data]
kind = "markov"
context = 16
validation_samples = 16
[optimizer]
kind = "adamw"
[schedule]
learning_rate = 0.005
)";

constexpr char kGpt[] = R"(
tokens = 2
[model]
kind = "transformer"
layers = 2
heads = 4
width = 32
dropout = 0.1
)";

constexpr char kExperts[] = R"(
tokens = 2
[model]
kind = "llama"
layers = 2
heads = 4
key_heads = 2
width = 32
[model.experts]
count = 4
)";

constexpr char kResNet[] = R"(
[model]
kind = "resnet"
width = 8
[data]
kind = "shapes"
validation_samples = 16
[optimizer]
kind = "sgd"
momentum = 0.9
[schedule]
learning_rate = 0.02
)";

std::string TextOf(FaultModel model) {
  switch (model) {
    case FaultModel::kGpt:
      return absl::StrCat(kGpt, kTokens);
    case FaultModel::kExperts:
      return absl::StrCat(kExperts, kTokens);
    case FaultModel::kResNet:
      return kResNet;
  }
  return "";
}

// The hash of the parameters in a run's summary; empty where there is none.
std::string HashOf(const std::string& out) {
  const auto summary = nlohmann::json::parse(ReadFile(out + "/summary.json").value_or(""), nullptr,
                                             /*allow_exceptions=*/false);
  if (!summary.is_object() || !summary.contains("parameter_hash")) return "";
  return summary["parameter_hash"].get<std::string>();
}

}  // namespace

std::string FaultWorkloadText(const FaultWorkload& workload) {
  return absl::StrCat(
      "name = \"faults\"\n[train]\nsteps = ", workload.steps,
      "\n[batch]\nsize = 16\n[run]\nthreads = 1\n[precision]\ncompute = \"",
      workload.is_bf16 ? "bf16" : "fp32", "\"\n[checkpoint]\nevery = ", workload.checkpoint_every,
      "\n[cut]\nshards = 4\nmicro_batches = 2\nfeatures = 2", TextOf(workload.model));
}

absl::StatusOr<std::string> PrepareFaultRuns(const FaultWorkload& workload,
                                             const std::string& folder) {
  LS_RETURN_IF_ERROR(MakeDirectories(folder));
  const std::string path = folder + "/workload.toml";
  LS_RETURN_IF_ERROR(WriteFileAtomically(path, FaultWorkloadText(workload)));
  LS_ASSIGN_OR_RETURN(const ProcessResult result,
                      RunProcess({.arguments = {"strategies/single/main", "--config", path, "--out",
                                                absl::StrCat(folder, "/", kUndisturbed)}}));
  if (result.ok()) return path;
  return absl::InternalError(
      absl::StrCat("the undisturbed run: ", result.Describe(), "\n", result.err));
}

std::string DifferenceFromUndisturbed(const std::string& out, const std::string& folder) {
  return DifferenceFromUndisturbed(out, folder, HashOf(out));
}

std::string DifferenceFromUndisturbed(const std::string& out, const std::string& folder,
                                      const std::string& parameter_hash) {
  const std::string undisturbed = absl::StrCat(folder, "/", kUndisturbed);
  const auto losses = ReadFile(undisturbed + "/losses.csv");
  if (!losses.ok()) return std::string(losses.status().message());
  if (ReadFile(out + "/losses.csv").value_or("") != *losses) return out + "/losses.csv differs";
  const std::string hash = HashOf(undisturbed);
  if (hash.empty() || parameter_hash != hash) return out + ": the parameters' hash differs";
  return "";
}

std::string LeftoversOf(const std::string& out) {
  if (PathExists(out + ".1")) return out + ".1 was set aside";
  std::vector<std::string> folders = {out};
  while (!folders.empty()) {
    const std::string folder = folders.back();
    folders.pop_back();
    const absl::StatusOr<std::vector<std::string>> names = ListFolder(folder);
    if (!names.ok()) return std::string(names.status().message());
    for (const std::string& name : *names) {
      const std::string path = absl::StrCat(folder, "/", name);
      if (absl::StrContains(name, ".tmp")) return path + " was left";
      if (absl::StrContains(name, ".damaged")) return path + " was set aside";
      if (IsDirectory(path)) folders.push_back(path);
    }
  }
  return "";
}

int64_t StepsLogged(const std::string& out) {
  const std::string text = ReadFile(out + "/losses.csv").value_or("");
  return std::max<int64_t>(0, std::count(text.begin(), text.end(), '\n') - 1);
}

int64_t StepsSaved(const std::string& out) {
  const auto found = ListCheckpoints(out + "/checkpoints");
  return found.ok() && !found->empty() ? found->back().step : 0;
}

bool Await(absl::FunctionRef<bool()> condition, double seconds) {
  const int64_t start = NowNanos();
  while (!condition()) {
    if (SecondsSince(start) > seconds) return false;
    usleep(200);
  }
  return true;
}

WatchedEnd WaitAtMost(Subprocess& run, const std::string& out, double seconds) {
  WatchedEnd end;
  // A thread, as Wait reads what would otherwise fill the program's pipes.
  std::jthread watch([&](const std::stop_token& is_over) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any().wait_for(lock, is_over, std::chrono::duration<double>(seconds),
                                           [&] { return is_over.stop_requested(); });
    if (is_over.stop_requested()) return;
    end.is_late = true;
    while (!is_over.stop_requested()) {
      for (const LaunchedProcess& process : ProcessesOf(out)) kill(process.pid, SIGKILL);
      usleep(10'000);
    }
  });
  end.result = run.Wait();
  watch.request_stop();
  watch.join();
  return end;
}

}  // namespace lockstep
