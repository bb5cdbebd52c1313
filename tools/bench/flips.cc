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
#include "strategies/testing/flipping.h"
#include "strategies/testing/flipping_calls.h"
#include "tools/bench/flip_runs.h"
#include "tools/bench/rank_states.h"

namespace lockstep {
namespace {

constexpr int64_t kStepsOfResumed = 5;  // of runs that go on from a checkpoint of kFlipSteps steps
constexpr int64_t kOtherFlips = 9;      // flips for one in a checkpoint
constexpr int64_t kFlipsOfQuietRun = 20;

using Target = Flip::Target;

// A target that has a number of tensors in each step, and the kind that it counts as.
struct TargetKind {
  Target target;
  const char* kind;
};
constexpr std::array<TargetKind, 8> kTargets = {
    {{Target::kRestingState, "state"},
     {Target::kState, "state"},
     {Target::kPass, "activations and their gradients"},
     {Target::kSeenPass, "activations and their gradients"},
     {Target::kGradient, "gradients of parameters"},
     {Target::kSeenGradient, "gradients of parameters"},
     {Target::kSent, "messages between ranks"},
     {Target::kReceived, "messages between ranks"}}};
constexpr char kCheckpoints[] = "checkpoints";

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
  FlippedRuns(const FlipOptions& options, const std::string& repeat_on)
      : options_(options), repeat_on_(repeat_on), random_(options.seed) {}

  absl::StatusOr<FlipsByKind> Run() {
    LS_RETURN_IF_ERROR(PrepareFlipRuns(options_.folder));
    for (const FlipLayout& layout : layouts_) LS_RETURN_IF_ERROR(Prepare(layout));
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

  std::vector<std::string> Assignments(const FlipLayout& layout, bool is_watched) const {
    std::vector<std::string> all = layout.mesh;
    all.push_back(absl::StrCat("guard.every=", is_watched ? 1 : 0));
    if (is_watched) all.push_back(absl::StrCat("guard.repeat_on=\"", repeat_on_, "\""));
    return all;
  }

  static std::vector<std::string> Resumable(const FlipLayout& layout, int64_t steps) {
    std::vector<std::string> all = layout.mesh;
    for (const char* more : {"checkpoint.keep=3", "checkpoint.every=1", "checkpoint.write=step"}) {
      all.push_back(more);
    }
    all.push_back(absl::StrCat("train.steps=", steps));
    return all;
  }

  // Trains the layout undisturbed, and counts what passes by.
  absl::Status Prepare(const FlipLayout& layout) {
    LS_RETURN_IF_ERROR(TrainUndisturbed(options_.folder, layout).status);
    const auto states = std::make_shared<RankStates>();
    undisturbed_.push_back(Train(options_.folder, {.strategy = Telling(layout.strategy, states),
                                                   .assignments = Assignments(layout, false)}));
    LS_RETURN_IF_ERROR(undisturbed_.back().status);
    held_.push_back(states->bytes);
    const std::string index = absl::StrCat(undisturbed_.size() - 1);
    longer_.push_back(Train(options_.folder, {.strategy = layout.strategy,
                                              .assignments = Resumable(layout, kStepsOfResumed),
                                              .out = "longer"}));
    LS_RETURN_IF_ERROR(longer_.back().status);
    return Train(options_.folder, {.strategy = layout.strategy,
                                   .assignments = Resumable(layout, kFlipSteps),
                                   .out = "saved" + index})
        .status;
  }

  absl::Status RunQuietly(size_t at) {
    const FlipLayout& layout = layouts_[at];
    const FlipOutcome quiet = Train(
        options_.folder, {.strategy = layout.strategy, .assignments = Assignments(layout, true)});
    FlipCounts& counts = CountsOf(counts_, "state");
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
              .rank = static_cast<int>(Below(kFlipRanks)),
              .step = static_cast<int64_t>(Below(kFlipSteps)),
              .tensor = random_(),
              .bit = random_()};
      tensors = layouts_[at].TensorsOf(chosen.target, flip.rank);
    } while (tensors == 0);
    const FlipLayout& layout = layouts_[at];
    const auto states = std::make_shared<RankStates>();
    const auto train = [&](bool is_watched) {
      const auto calls = std::make_shared<CallFlips>(kFlipRanks);
      const StrategyDefinition flipped = WithFlip(layout.strategy, flip, tensors, calls);
      return Train(options_.folder, {.strategy = is_watched ? flipped : Telling(flipped, states),
                                     .assignments = Assignments(layout, is_watched),
                                     .calls = calls});
    };
    const FlipOutcome unwatched = train(/*is_watched=*/false);
    const bool changed = !unwatched.SameAs(undisturbed_[at]) || states->bytes != held_[at];
    const FlipOutcome watched = train(/*is_watched=*/true);
    FlipCounts& counts = CountsOf(counts_, chosen.kind);
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
    // What ranks receive again where they repeat a step, they overwrite.
    const bool healed = is_message && is_healed;
    counts.healed += changed && healed ? 1 : 0;
    counts.missed += changed && !seen && !healed ? 1 : 0;
    // Whatever else ends the run, such as a check of another step.
    counts.false_alarms += !changed && !seen && !watched.ok() ? 1 : 0;
    if (!seen) return;
    // A message is no rank's work: it may have been wrong before, on or behind its way.
    counts.TakeNames(message, flip.rank, has_copies && !is_message);
  }

  // Flips a bit of a file of the newest checkpoint, and goes on from it.
  absl::Status FlipInCheckpoint(size_t at) {
    const FlipLayout& layout = layouts_[at];
    const std::string out = options_.folder + "/out";
    RemoveTree(out);
    std::vector<std::string> files;  // of the newest checkpoint
    LS_RETURN_IF_ERROR(CopyTree(absl::StrCat(options_.folder, "/saved", at), out, files));
    const std::string newest = absl::StrCat("step-0000000", kFlipSteps);
    std::erase_if(files, [&](const std::string& file) { return !absl::StrContains(file, newest); });
    if (files.empty()) return absl::InternalError("no checkpoint of " + layout.strategy.name);
    LS_RETURN_IF_ERROR(FlipBitOfFile(files[Below(files.size())]));
    const FlipOutcome resumed =
        Train(options_.folder, {.strategy = layout.strategy,
                                .assignments = Resumable(layout, kStepsOfResumed),
                                .resume = true});
    bool is_seen = !resumed.status.ok();
    LS_ASSIGN_OR_RETURN(const std::vector<std::string> left, ListFolder(out + "/checkpoints"));
    for (const std::string& name : left) is_seen = is_seen || absl::StrContains(name, ".damaged");
    FlipCounts& counts = CountsOf(counts_, kCheckpoints);
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
  const std::string repeat_on_;
  std::mt19937_64 random_;
  const std::vector<FlipLayout> layouts_ = FlipLayouts();
  std::vector<FlipOutcome> undisturbed_, longer_;  // by layout
  // What ranks hold at the end of the first, likewise.
  std::vector<decltype(RankStates::bytes)> held_;
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
  gone_on += other.gone_on;
  strayed += other.strayed;
  quiet_runs += other.quiet_runs;
  false_alarms += other.false_alarms;
  return *this;
}

void FlipCounts::TakeNames(const std::string& message, int rank, bool must_be_named) {
  const std::vector<int> accused = AccusedRanks(message);
  for (const int one : accused) (one == rank ? named : misnamed) += 1;
  if (must_be_named && accused.empty()) unnamed += 1;
}

FlipCounts& CountsOf(FlipsByKind& counts, const std::string& kind) {
  for (auto& [name, its] : counts) {
    if (name == kind) return its;
  }
  return counts.emplace_back(kind, FlipCounts()).second;
}

FlipCounts Total(const FlipsByKind& counts) {
  FlipCounts total;
  for (const auto& [kind, its] : counts) total += its;
  return total;
}

std::string ToString(const FlipCounts& counts) {
  return absl::StrCat(counts.flips, " flips: ", counts.changed, " changed the result, ",
                      counts.seen, " were seen in time, ", counts.healed,
                      " undone by its repetition, ", counts.missed, " missed; ", counts.named,
                      " with the right rank named, ", counts.misnamed, " with a wrong one, ",
                      counts.unnamed, " with none where three copies exist; ",
                      counts.gone_on + counts.strayed, " went on, ", counts.strayed,
                      " of them to other bits; ", counts.false_alarms, " false alarms; ",
                      counts.quiet_runs, " of the runs were without a flip");
}

absl::StatusOr<FlipsByKind> CountFlips(const FlipOptions& options, const std::string& repeat_on) {
  return FlippedRuns(options, repeat_on).Run();
}

}  // namespace lockstep
