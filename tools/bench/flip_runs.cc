#include "tools/bench/flip_runs.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/checkpoint/in_memory.h"
#include "core/config/command_line.h"
#include "core/run/leg/training_run.h"
#include "core/run/trainer.h"
#include "models/models.h"
#include "strategies/ddp/ddp.h"
#include "strategies/engine/preset.h"
#include "strategies/fsdp/fsdp.h"
#include "strategies/gpipe/gpipe.h"
#include "strategies/testing/watched_calls.h"

namespace lockstep {
namespace {

using Target = Flip::Target;

constexpr char kWorkload[] = R"(name = "flips"
[train]
steps = 3
seed = 7
clip_norm = 1.0
[batch]
size = 6
[cut]
shards = 3
micro_batches = 1
[model]
kind = "transformer"
layers = 2
heads = 2
width = 12
dropout = 0.1
[data]
kind = "markov"
context = 8
[optimizer]
kind = "adamw"
weight_decay = 0.1
[schedule]
learning_rate = 0.01
[validation]
batches = 1
batch_size = 3
[checkpoint]
keep = 0
[run]
threads = 1
timeout_seconds = 30
)";

}  // namespace

TensorCounts FlipLayout::CountsOf(Target target) const {
  switch (target) {
    case Target::kPass:
    case Target::kSeenPass:
      return passes;
    case Target::kGradient:
    case Target::kSeenGradient:
      return gradients;
    case Target::kSent:
      return sent;
    case Target::kReceived:
      return received;
    default:
      return nullptr;
  }
}

uint64_t FlipLayout::TensorsOf(Target target, int rank) const {
  const TensorCounts counts = CountsOf(target);
  return counts == nullptr ? 1 : counts[static_cast<size_t>(rank)];
}

std::vector<FlipLayout> FlipLayouts() {
  return {{.strategy = DdpStrategy(), .mesh = {"mesh.dp=3"}, .has_copies = true},
          {.strategy = FsdpStrategy(), .mesh = {"mesh.dp=3"}},
          {.strategy = EnginePreset("engine", {}),
           .mesh = {"mesh.pp=1", "mesh.replicas=3", "mesh.dp=1", "mesh.tp=1"},
           .has_copies = true},
          {.strategy = GPipeStrategy(), .mesh = {"mesh.pp=3", "mesh.dp=1"}}};
}

bool FlipOutcome::SameAs(const FlipOutcome& other) const {
  const auto is_same = [](double a, double b) {  // NaN too
    return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
  };
  return status.ok() && std::ranges::equal(losses, other.losses, is_same) && hash == other.hash;
}

absl::Status PrepareFlipRuns(const std::string& folder) {
  return WriteFileAtomically(folder + "/workload.toml", kWorkload);
}

FlipOutcome Train(const std::string& folder, const FlipRun& wanted) {
  CommandLine command_line;
  command_line.configs = {folder + "/workload.toml"};
  command_line.assignments = wanted.assignments;
  command_line.out = absl::StrCat(folder, "/", wanted.out);
  command_line.resume = wanted.resume;
  if (!wanted.resume) RemoveTree(command_line.out);
  auto run = PrepareRun(command_line, wanted.strategy, MakeModel);
  if (!run.ok()) return {.status = run.status()};
  run->visit = wanted.visit;
  if (wanted.calls != nullptr) run->devices = WithWatchedCalls(run->devices, wanted.calls);
  const auto reports = TrainRanks(*run);
  if (wanted.after == AfterRun::kRemoveCopies) RemoveInMemoryFolder(command_line.out);
  if (!reports.ok()) return {.status = reports.status()};
  return {.status = absl::OkStatus(),
          .losses = (*reports)[0].losses,
          .hash = (*reports)[0].parameter_hash};
}

FlipOutcome TrainUndisturbed(const std::string& folder, const FlipLayout& layout) {
  const auto calls = std::make_shared<CallFlips>(kFlipRanks);
  FlipOutcome outcome;
  for (const Target target : {Target::kPass, Target::kGradient, Target::kSent, Target::kReceived}) {
    outcome = Train(folder,
                    {.strategy = WithCount(layout.strategy, target, layout.CountsOf(target), calls),
                     .assignments = layout.mesh,
                     .calls = calls});
    if (!outcome.status.ok()) return outcome;
  }
  return outcome;
}

std::vector<int> AccusedRanks(const std::string& message) {
  std::vector<int> accused;
  if (absl::StrContains(message, "seen first")) return accused;
  for (int rank = 0; rank < kFlipRanks; ++rank) {
    if (absl::StrContains(message, absl::StrCat(" on rank ", rank, " "))) accused.push_back(rank);
  }
  return accused;
}

}  // namespace lockstep
