#include "tools/bench/flips.h"

#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/config/command_line.h"
#include "core/run/trainer.h"
#include "core/run/training_run.h"
#include "models/models.h"
#include "strategies/ddp/ddp.h"
#include "strategies/engine/preset.h"
#include "strategies/fsdp/fsdp.h"
#include "strategies/testing/flipping.h"

namespace lockstep {
namespace {

constexpr int kRanks = 3;
constexpr int64_t kSteps = 3;

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

struct Layout {
  StrategyDefinition strategy;
  std::vector<std::string> mesh;
  std::shared_ptr<uint64_t[]> tensors = std::make_shared<uint64_t[]>(kRanks);  // of a pass, by rank
};

std::vector<Layout> Layouts() {
  return {{.strategy = DdpStrategy(), .mesh = {"mesh.dp=3"}},
          {.strategy = FsdpStrategy(), .mesh = {"mesh.dp=3"}},
          {.strategy = EnginePreset("engine", {}),
           .mesh = {"mesh.pp=1", "mesh.replicas=3", "mesh.dp=1", "mesh.tp=1"}}};
}

// Losses and weights of a run, or how it ended.
struct Outcome {
  absl::Status status;
  std::vector<double> losses = {};
  std::string hash = "";
};

Outcome Train(const StrategyDefinition& strategy, const Layout& layout, int guard,
              const std::string& folder) {
  CommandLine command_line;
  command_line.configs = {folder + "/workload.toml"};
  command_line.assignments = layout.mesh;
  command_line.assignments.push_back(absl::StrCat("guard.every=", guard));
  command_line.out = folder + "/out";
  RemoveTree(command_line.out);
  const auto run = PrepareRun(command_line, strategy, MakeModel);
  if (!run.ok()) return {.status = run.status()};
  const auto reports = TrainRanks(*run);
  if (!reports.ok()) return {.status = reports.status()};
  return {.status = absl::OkStatus(),
          .losses = (*reports)[0].losses,
          .hash = (*reports)[0].parameter_hash};
}

Flip RandomFlip(std::mt19937_64& random) {
  using enum Flip::Target;
  constexpr Flip::Target kTargets[] = {kRestingState, kState, kPass, kPass};
  return {.target = kTargets[random() % std::size(kTargets)],
          .rank = static_cast<int>(random() % kRanks),
          .step = static_cast<int64_t>(random() % kSteps),
          .tensor = random(),
          .bit = random()};
}

// Takes note of how a watched run with a flip ended.
void Judge(const Flip& flip, bool changed, const absl::Status& watched, FlipCounts& counts) {
  const std::string message(watched.message());
  const bool seen =
      absl::StrContains(message, absl::StrCat("step ", flip.step + 1, ": wrong bits: "));
  counts.flips += 1;
  counts.changed += changed ? 1 : 0;
  counts.seen += seen ? 1 : 0;
  counts.missed += changed && !seen ? 1 : 0;
  if (!seen || absl::StrContains(message, "seen first")) return;  // no rank is accused
  for (int rank = 0; rank < kRanks; ++rank) {
    if (!absl::StrContains(message, absl::StrCat(" on rank ", rank, " "))) continue;
    (rank == flip.rank ? counts.named : counts.misnamed) += 1;
  }
}

}  // namespace

std::string ToString(const FlipCounts& counts) {
  return absl::StrCat(counts.flips, " flips: ", counts.changed, " changed the result, ",
                      counts.seen, " were seen in their step, ", counts.missed, " missed; ",
                      counts.named, " with the right rank named, ", counts.misnamed,
                      " with a wrong one; ", counts.false_alarms, " false alarms in ",
                      counts.quiet_runs, " runs without a flip");
}

absl::StatusOr<FlipCounts> CountFlips(int64_t flips, uint64_t seed, const std::string& folder,
                                      const std::function<void(const FlipCounts&)>& progress) {
  LS_RETURN_IF_ERROR(WriteFileAtomically(folder + "/workload.toml", kWorkload));
  FlipCounts counts;
  std::vector<Layout> layouts = Layouts();
  std::vector<Outcome> undisturbed;
  for (const Layout& layout : layouts) {
    undisturbed.push_back(Train(WithCount(layout.strategy, layout.tensors), layout, 0, folder));
    LS_RETURN_IF_ERROR(undisturbed.back().status);
    const Outcome quiet = Train(layout.strategy, layout, 1, folder);
    counts.quiet_runs += 1;
    counts.false_alarms += quiet.status.ok() ? 0 : 1;
    if (quiet.status.ok() && quiet.hash != undisturbed.back().hash) {
      return absl::InternalError("the guard changed a run: " + layout.strategy.name);
    }
  }
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < flips; ++i) {
    const size_t at = random() % layouts.size();
    const Layout& layout = layouts[at];
    const Flip flip = RandomFlip(random);
    const StrategyDefinition faulty =
        WithFlip(layout.strategy, flip, layout.tensors[static_cast<size_t>(flip.rank)]);
    const Outcome blind = Train(faulty, layout, 0, folder);
    const bool changed = !blind.status.ok() || blind.losses != undisturbed[at].losses ||
                         blind.hash != undisturbed[at].hash;
    Judge(flip, changed, Train(faulty, layout, 1, folder).status, counts);
    progress(counts);
  }
  return counts;
}

}  // namespace lockstep
