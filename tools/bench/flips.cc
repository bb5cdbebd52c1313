#include "tools/bench/flips.h"

#include <array>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/config/command_line.h"
#include "core/run/leg/training_run.h"
#include "core/run/trainer.h"
#include "models/models.h"
#include "strategies/ddp/ddp.h"
#include "strategies/engine/preset.h"
#include "strategies/fsdp/fsdp.h"
#include "strategies/gpipe/gpipe.h"
#include "strategies/testing/flipping.h"
#include "strategies/testing/flipping_calls.h"
#include "strategies/testing/watched_calls.h"

namespace lockstep {
namespace {

constexpr int kRanks = 3;
constexpr int64_t kSteps = 3;
constexpr int64_t kStepsOfResumed = 5;  // of runs that go on from a checkpoint of kSteps steps
constexpr int64_t kOtherFlips = 9;      // flips for one in a checkpoint
constexpr int64_t kFlipsOfQuietRun = 20;

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

using Target = Flip::Target;

// A target that has a number of tensors in each step, and the kind that it counts as.
struct TargetKind {
  Target target;
  const char* kind;
};
constexpr std::array<TargetKind, 7> kTargets = {{{Target::kRestingState, "state"},
                                                 {Target::kState, "state"},
                                                 {Target::kPass, "activations and their gradients"},
                                                 {Target::kPass, "activations and their gradients"},
                                                 {Target::kGradient, "gradients of parameters"},
                                                 {Target::kSent, "messages between ranks"},
                                                 {Target::kReceived, "messages between ranks"}}};
constexpr char kCheckpoints[] = "checkpoints";

// How many tensors of a target a step has, by rank.
using TensorCounts = std::shared_ptr<uint64_t[]>;

struct Layout {
  StrategyDefinition strategy;
  std::vector<std::string> mesh;
  // Whether each of the three ranks holds the whole state. Then three copies exist of the state,
  // and of each rank's work on it: the step and two repetitions.
  bool has_copies = false;
  TensorCounts passes = std::make_shared<uint64_t[]>(kRanks);
  TensorCounts gradients = std::make_shared<uint64_t[]>(kRanks);
  TensorCounts sent = std::make_shared<uint64_t[]>(kRanks);
  TensorCounts received = std::make_shared<uint64_t[]>(kRanks);

  // Null: of a target that is not counted.
  TensorCounts CountsOf(Target target) const {
    switch (target) {
      case Target::kPass:
        return passes;
      case Target::kGradient:
        return gradients;
      case Target::kSent:
        return sent;
      case Target::kReceived:
        return received;
      default:
        return nullptr;
    }
  }
};

std::vector<Layout> Layouts() {
  return {{.strategy = DdpStrategy(), .mesh = {"mesh.dp=3"}, .has_copies = true},
          {.strategy = FsdpStrategy(), .mesh = {"mesh.dp=3"}},
          {.strategy = EnginePreset("engine", {}),
           .mesh = {"mesh.pp=1", "mesh.replicas=3", "mesh.dp=1", "mesh.tp=1"},
           .has_copies = true},
          {.strategy = GPipeStrategy(), .mesh = {"mesh.pp=3", "mesh.dp=1"}}};
}

// Losses and weights of a run, or how it ended.
struct Outcome {
  absl::Status status;
  std::vector<double> losses = {};
  std::string hash = "";

  bool SameAs(const Outcome& other) const {
    return status.ok() && losses == other.losses && hash == other.hash;
  }
};

// Trains in `out`; its calls tell `calls`, if there is one.
Outcome Train(const StrategyDefinition& strategy, const std::string& folder, const std::string& out,
              const std::vector<std::string>& assignments,
              const std::shared_ptr<CallFlips>& calls = nullptr, bool resume = false) {
  CommandLine command_line;
  command_line.configs = {folder + "/workload.toml"};
  command_line.assignments = assignments;
  command_line.out = folder + "/" + out;
  command_line.resume = resume;
  if (!resume) RemoveTree(command_line.out);
  auto run = PrepareRun(command_line, strategy, MakeModel);
  if (!run.ok()) return {.status = run.status()};
  if (calls != nullptr) run->devices = WithWatchedCalls(run->devices, calls);
  const auto reports = TrainRanks(*run);
  if (!reports.ok()) return {.status = reports.status()};
  return {.status = absl::OkStatus(),
          .losses = (*reports)[0].losses,
          .hash = (*reports)[0].parameter_hash};
}

// Copies a folder, and adds the paths of the copies of its files to `files`, in order.
absl::Status CopyTree(const std::string& from, const std::string& to,
                      std::vector<std::string>& files) {
  LS_RETURN_IF_ERROR(MakeDirectories(to));
  LS_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(from));
  for (const std::string& name : names) {
    const std::string source = absl::StrCat(from, "/", name), copy = absl::StrCat(to, "/", name);
    if (IsDirectory(source)) {
      LS_RETURN_IF_ERROR(CopyTree(source, copy, files));
      continue;
    }
    LS_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(source));
    LS_RETURN_IF_ERROR(WriteFileAtomically(copy, bytes));
    files.push_back(copy);
  }
  return absl::OkStatus();
}

class FlippedRuns {
 public:
  explicit FlippedRuns(const FlipOptions& options) : options_(options), random_(options.seed) {}

  absl::StatusOr<FlipsByKind> Run() {
    LS_RETURN_IF_ERROR(WriteFileAtomically(options_.folder + "/workload.toml", kWorkload));
    for (const Layout& layout : layouts_) LS_RETURN_IF_ERROR(Prepare(layout));
    for (int64_t i = 0; i < options_.flips; ++i) {
      if (i % kFlipsOfQuietRun == 0) LS_RETURN_IF_ERROR(RunQuietly(Below(layouts_.size())));
      const bool is_of_file = i % (kOtherFlips + 1) == kOtherFlips;
      if (is_of_file) {
        LS_RETURN_IF_ERROR(FlipInCheckpoint(Below(layouts_.size())));
      } else {
        FlipInStep();
      }
      options_.progress(Total(counts_));
    }
    return counts_;
  }

 private:
  size_t Below(size_t limit) { return random_() % limit; }

  FlipCounts& CountsOf(const std::string& kind) {
    for (auto& [name, counts] : counts_) {
      if (name == kind) return counts;
    }
    return counts_.emplace_back(kind, FlipCounts()).second;
  }

  std::vector<std::string> Assignments(const Layout& layout, bool is_watched) const {
    std::vector<std::string> all = layout.mesh;
    all.push_back(absl::StrCat("guard.every=", is_watched ? 1 : 0));
    if (is_watched) all.push_back(absl::StrCat("guard.repeat_on=\"", options_.repeat_on, "\""));
    return all;
  }

  static std::vector<std::string> Resumable(const Layout& layout, int64_t steps) {
    std::vector<std::string> all = layout.mesh;
    for (const char* more : {"checkpoint.keep=3", "checkpoint.every=1", "checkpoint.write=step"}) {
      all.push_back(more);
    }
    all.push_back(absl::StrCat("train.steps=", steps));
    return all;
  }

  // Trains the layout undisturbed, and counts what passes by.
  absl::Status Prepare(const Layout& layout) {
    const auto calls = std::make_shared<CallFlips>(kRanks);
    Outcome plain;
    for (const Target target :
         {Target::kPass, Target::kGradient, Target::kSent, Target::kReceived}) {
      plain = Train(WithCount(layout.strategy, target, layout.CountsOf(target), calls),
                    options_.folder, "out", Assignments(layout, false), calls);
      LS_RETURN_IF_ERROR(plain.status);
    }
    undisturbed_.push_back(plain);
    const std::string index = absl::StrCat(undisturbed_.size() - 1);
    longer_.push_back(
        Train(layout.strategy, options_.folder, "longer", Resumable(layout, kStepsOfResumed)));
    LS_RETURN_IF_ERROR(longer_.back().status);
    return Train(layout.strategy, options_.folder, "saved" + index, Resumable(layout, kSteps))
        .status;
  }

  absl::Status RunQuietly(size_t at) {
    const Layout& layout = layouts_[at];
    const Outcome quiet = Train(layout.strategy, options_.folder, "out", Assignments(layout, true));
    FlipCounts& counts = CountsOf("state");
    counts.quiet_runs += 1;
    counts.false_alarms += quiet.status.ok() ? 0 : 1;
    if (!quiet.status.ok() || quiet.SameAs(undisturbed_[at])) return absl::OkStatus();
    return absl::InternalError("the guard changed a run: " + layout.strategy.name);
  }

  void FlipInStep() {
    size_t at = 0;
    TargetKind chosen = kTargets[0];
    Flip flip;
    uint64_t tensors = 0;
    do {  // not all layouts have all of them on all ranks
      at = Below(layouts_.size());
      chosen = kTargets[Below(kTargets.size())];
      flip = {.target = chosen.target,
              .rank = static_cast<int>(Below(kRanks)),
              .step = static_cast<int64_t>(Below(kSteps)),
              .tensor = random_(),
              .bit = random_()};
      const TensorCounts counts = layouts_[at].CountsOf(chosen.target);
      tensors = counts == nullptr ? 1 : counts[static_cast<size_t>(flip.rank)];
    } while (tensors == 0);
    const Layout& layout = layouts_[at];
    const auto train = [&](bool is_watched) {
      const auto calls = std::make_shared<CallFlips>(kRanks);
      return Train(WithFlip(layout.strategy, flip, tensors, calls), options_.folder, "out",
                   Assignments(layout, is_watched), calls);
    };
    const bool changed = !train(/*is_watched=*/false).SameAs(undisturbed_[at]);
    const Outcome watched = train(/*is_watched=*/true);
    FlipCounts& counts = CountsOf(chosen.kind);
    const int64_t failures = counts.failures();
    Judge(flip, layout.has_copies, changed, watched.SameAs(undisturbed_[at]), watched.status,
          counts);
    if (counts.failures() == failures) return;
    counts.wrong.push_back(absl::StrCat(
        layout.strategy.name, ", rank ", flip.rank, ", step ", flip.step + 1, ", ", chosen.kind,
        " (", static_cast<int>(chosen.target), "), tensor ", flip.tensor % tensors, " of ", tensors,
        ": ", watched.status.ok() ? "no word" : watched.status.message()));
  }

  // Takes note of how a watched run with a flip ended.
  static void Judge(const Flip& flip, bool has_copies, bool changed, bool is_healed,
                    const absl::Status& watched, FlipCounts& counts) {
    const std::string message(watched.message());
    // What ranks send each other at the end of a step, such as weights, the next one computes with.
    const bool is_message = flip.target == Target::kSent || flip.target == Target::kReceived;
    const auto is_in = [&](int64_t step) {
      return absl::StrContains(message, absl::StrCat("step ", step + 1, ": wrong bits: "));
    };
    const bool seen = is_in(flip.step) || (is_message && is_in(flip.step + 1));
    counts.flips += 1;
    counts.changed += changed ? 1 : 0;
    counts.seen += seen ? 1 : 0;
    counts.healed += changed && is_healed ? 1 : 0;
    counts.missed += changed && !seen && !is_healed ? 1 : 0;
    if (!seen) return;
    const bool is_accused = !absl::StrContains(message, "seen first");
    bool is_named = false;
    for (int rank = 0; rank < kRanks && is_accused; ++rank) {
      if (!absl::StrContains(message, absl::StrCat(" on rank ", rank, " "))) continue;
      (rank == flip.rank ? counts.named : counts.misnamed) += 1;
      is_named = true;
    }
    // A message is no rank's work: it may have been wrong before, on or behind its way.
    if (has_copies && !is_message && !is_named) counts.unnamed += 1;
  }

  // Flips a bit of a file of the newest checkpoint, and goes on from it.
  absl::Status FlipInCheckpoint(size_t at) {
    const Layout& layout = layouts_[at];
    const std::string out = options_.folder + "/out";
    RemoveTree(out);
    std::vector<std::string> files;  // of the newest checkpoint
    LS_RETURN_IF_ERROR(CopyTree(absl::StrCat(options_.folder, "/saved", at), out, files));
    const std::string newest = absl::StrCat("step-0000000", kSteps);
    std::erase_if(files, [&](const std::string& file) { return !absl::StrContains(file, newest); });
    if (files.empty()) return absl::InternalError("no checkpoint of " + layout.strategy.name);
    LS_RETURN_IF_ERROR(FlipBitOfFile(files[Below(files.size())]));
    const Outcome resumed = Train(layout.strategy, options_.folder, "out",
                                  Resumable(layout, kStepsOfResumed), nullptr, /*resume=*/true);
    bool is_seen = !resumed.status.ok();
    LS_ASSIGN_OR_RETURN(const std::vector<std::string> left, ListFolder(out + "/checkpoints"));
    for (const std::string& name : left) is_seen = is_seen || absl::StrContains(name, ".damaged");
    FlipCounts& counts = CountsOf(kCheckpoints);
    counts.flips += 1;
    counts.seen += is_seen ? 1 : 0;
    // The losses before the checkpoint are those of the run that saved it.
    const bool is_right = resumed.status.ok() && resumed.hash == longer_[at].hash &&
                          resumed.losses.back() == longer_[at].losses.back();
    counts.changed += is_seen || !is_right ? 1 : 0;
    counts.missed += is_right ? 0 : 1;
    return absl::OkStatus();
  }

  absl::Status FlipBitOfFile(const std::string& path) {
    LS_ASSIGN_OR_RETURN(std::string bytes, ReadFile(path));
    char& byte = bytes[Below(bytes.size())];
    byte = static_cast<char>(byte ^ (1 << Below(8)));
    return WriteFileAtomically(path, bytes);
  }

  const FlipOptions& options_;
  std::mt19937_64 random_;
  const std::vector<Layout> layouts_ = Layouts();
  std::vector<Outcome> undisturbed_, longer_;  // by layout
  FlipsByKind counts_;
};

}  // namespace

FlipCounts& FlipCounts::operator+=(const FlipCounts& other) {
  flips += other.flips;
  changed += other.changed;
  seen += other.seen;
  healed += other.healed;
  missed += other.missed;
  wrong.insert(wrong.end(), other.wrong.begin(), other.wrong.end());
  named += other.named;
  misnamed += other.misnamed;
  unnamed += other.unnamed;
  quiet_runs += other.quiet_runs;
  false_alarms += other.false_alarms;
  return *this;
}

FlipCounts Total(const FlipsByKind& counts) {
  FlipCounts total;
  for (const auto& [kind, its] : counts) total += its;
  return total;
}

std::string ToString(const FlipCounts& counts) {
  return absl::StrCat(counts.flips, " flips: ", counts.changed, " changed the result, ",
                      counts.seen, " were seen in their step, ", counts.healed,
                      " undone by its repetition, ", counts.missed, " missed; ", counts.named,
                      " with the right rank named, ", counts.misnamed, " with a wrong one, ",
                      counts.unnamed, " with none where three copies exist; ", counts.false_alarms,
                      " false alarms in ", counts.quiet_runs, " runs without a flip");
}

absl::StatusOr<FlipsByKind> CountFlips(const FlipOptions& options) {
  return FlippedRuns(options).Run();
}

}  // namespace lockstep
