#include "tools/bench/lasting_flips.h"

#include <array>
#include <cstddef>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/checkpoint/in_memory.h"
#include "core/checkpoint/state_tensor.h"
#include "core/run/leg/run_place.h"
#include "strategies/fsdp/fsdp.h"
#include "strategies/testing/flipping.h"
#include "strategies/testing/flipping_calls.h"
#include "tools/bench/flip_runs.h"
#include "tools/bench/rank_states.h"

namespace lockstep {
namespace {

constexpr int64_t kShortest = 2, kLongest = 8;  // intervals between checks
constexpr int64_t kChecks = 2;                  // the last of so many, at most, must see the flip
constexpr int64_t kCopies = 3;                  // so many copies in memory come before a flip
constexpr int64_t kFlipsOfQuietRun = 10;        // of a kind

constexpr char kProcessors[] = "processors gone wrong";
constexpr char kReplicas[] = "parted replicas";
constexpr char kShards[] = "shards beside their copies";
constexpr char kNotFinite[] = "what made a loss or gradient infinite or NaN";

// What a processor that has gone wrong gets wrong.
constexpr std::array<Flip::Target, 3> kComputed = {Flip::Target::kPass, Flip::Target::kGradient,
                                                   Flip::Target::kState};
// When the state of a replica flips: before a step, or after its update.
constexpr std::array<Flip::Target, 2> kHeld = {Flip::Target::kRestingState, Flip::Target::kState};

class LastinglyFlippedRuns {
 public:
  explicit LastinglyFlippedRuns(const FlipOptions& options)
      : options_(options), random_(options.seed) {}

  absl::StatusOr<FlipsByKind> Run() {
    LS_RETURN_IF_ERROR(PrepareFlipRuns(options_.folder));
    for (const FlipLayout& layout : layouts_) {
      LS_RETURN_IF_ERROR(TrainUndisturbed(options_.folder, layout).status);
    }
    for (int64_t i = 0; i < options_.flips; ++i) {
      is_quiet_due_ = i / 3 % kFlipsOfQuietRun == 0;
      switch (i % 3) {
        case 0:
          LS_RETURN_IF_ERROR(FlipOnProcessor());
          break;
        case 1:
          LS_RETURN_IF_ERROR(FlipInReplica());
          break;
        case 2:
          LS_RETURN_IF_ERROR(FlipBesideCopy());
          break;
      }
      options_.progress(Total(counts_));
    }
    return counts_;
  }

 private:
  using Assignments = std::vector<std::string>;

  // Wrong bits begin in step `begin`, counted from 0, and must be seen in step `check`.
  struct Interval {
    int64_t every = 0;
    int64_t begin = 0, check = 0;
  };

  // A run that a flip comes in, and what it must come to.
  struct Case {
    const char* kind = "";
    const FlipLayout* layout = nullptr;
    Assignments guard;           // assignments of a run that watches
    Assignments saves = {};      // and what it saves meanwhile
    std::string place;           // of the flip, for people
    int rank = 0;                // that the flip is on
    int64_t checked_steps = 0;   // behind the newest check before bits are wrong
    int64_t begin = 0;           // steps behind the run when bits are wrong first
    int64_t steps = 0;           // and when that must be seen at last
    bool is_not_finite = false;  // a loss or gradient is infinite or NaN by then
    bool must_be_seen = false;
    bool must_be_named = false;
  };

  int64_t Below(int64_t limit) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(limit));
  }
  template <typename Values>
  const auto& AnyOf(const Values& values) {
    return values[static_cast<size_t>(Below(std::ssize(values)))];
  }

  Interval AnyInterval() {
    const int64_t every = kShortest + Below(kLongest - kShortest + 1);
    const int64_t check = every * (1 + Below(kChecks)) - 1;
    return {.every = every, .begin = check - Below(every), .check = check};
  }

  static Assignments Guard(int64_t every, const std::string& repeat_on) {
    return {absl::StrCat("guard.every=", every),
            absl::StrCat("guard.repeat_on=\"", repeat_on, "\"")};
  }

  // Checkpoints and copies in memory that may come between two checks, and have what is wrong.
  Assignments AnySaves() {
    if (Below(3) == 0) return {};
    Assignments saves = {absl::StrCat("checkpoint.every=", 1 + Below(kShortest)),
                         absl::StrCat("checkpoint.keep=", 1 + Below(kShortest))};
    if (Below(2) == 0) {
      saves.push_back(absl::StrCat("checkpoint.in_memory_every=", 1 + Below(kShortest)));
    }
    return saves;
  }

  // Trains so many steps of a layout.
  FlipOutcome TrainSteps(const FlipLayout& layout, StrategyDefinition strategy, int64_t steps,
                         const Assignments& more = {}, PlaceVisitor visit = nullptr,
                         AfterRun after = AfterRun::kRemoveCopies) {
    return Train(options_.folder, {.strategy = std::move(strategy),
                                   .assignments = OfSteps(layout, steps, more),
                                   .after = after,
                                   .visit = std::move(visit)});
  }

  static Assignments OfSteps(const FlipLayout& layout, int64_t steps, const Assignments& more) {
    Assignments all = layout.mesh;
    all.push_back(absl::StrCat("train.steps=", steps));
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  absl::Status FlipOnProcessor() {
    const Interval at = AnyInterval();
    const FlipLayout* layout = nullptr;
    Flip flip;
    do {  // not all layouts have all of them on all ranks
      layout = &AnyOf(layouts_);
      flip = AnyFlip(AnyOf(kComputed), at);
    } while (layout->TensorsOf(flip.target, flip.rank) == 0);
    flip.time = -1;
    flip.steps = Flip::kForGood;
    // Whether the checked step is wrong itself, whatever the steps before it have come to.
    Flip earlier = flip;
    earlier.steps = at.check - at.begin;
    const auto train = [&](const Flip& one, RankStates& states) {
      const auto told = std::make_shared<RankStates>();
      FlipOutcome outcome =
          TrainSteps(*layout, Telling(Flipping(*layout, one), told), at.check + 1);
      states = *told;
      return outcome;
    };
    RankStates with, without;
    const FlipOutcome wrong = train(flip, with), right = train(earlier, without);
    LS_ASSIGN_OR_RETURN(const bool is_not_finite, IsNotFinite(wrong.status));
    const bool differs = with.bytes != without.bytes || !wrong.SameAs(right);
    return Watch({.kind = kProcessors,
                  .layout = layout,
                  .guard = Guard(at.every, "other_rank"),
                  .saves = AnySaves(),
                  .place = PlaceOf(flip, *layout),
                  .rank = flip.rank,
                  .checked_steps = at.begin / at.every * at.every,
                  .begin = at.begin,
                  .steps = at.check + 1,
                  .is_not_finite = is_not_finite,
                  .must_be_seen = differs,
                  .must_be_named = layout->has_copies},
                 Flipping(*layout, flip));
  }

  absl::Status FlipInReplica() {
    const Interval at = AnyInterval();
    const FlipLayout* layout = nullptr;
    do {
      layout = &AnyOf(layouts_);
    } while (!layout->has_copies);
    const Flip flip = AnyFlip(AnyOf(kHeld), at);
    const auto states = std::make_shared<RankStates>();
    const absl::Status ended =
        TrainSteps(*layout, Telling(Flipping(*layout, flip), states), at.check + 1).status;
    LS_ASSIGN_OR_RETURN(const bool is_not_finite, IsNotFinite(ended));
    return Watch({.kind = kReplicas,
                  .layout = layout,
                  .guard = Guard(at.every, Below(2) == 0 ? "same_rank" : "other_rank"),
                  .saves = AnySaves(),
                  .place = PlaceOf(flip, *layout),
                  .rank = flip.rank,
                  .checked_steps = at.begin / at.every * at.every,
                  .begin = at.begin,
                  .steps = at.check + 1,
                  .is_not_finite = is_not_finite,
                  .must_be_seen = is_not_finite || !states->are_same(),
                  .must_be_named = true},
                 Flipping(*layout, flip));
  }

  absl::Status FlipBesideCopy() {
    const FlipLayout* layout = nullptr;
    do {
      layout = &AnyOf(layouts_);
    } while (layout->strategy.name != FsdpStrategy().name);
    const int64_t copy_every = 1 + Below(kLongest);
    const int64_t steps = copy_every * (1 + Below(kCopies));  // behind the copy
    const int rank = static_cast<int>(Below(kFlipRanks));
    const uint64_t tensor = random_(), bit = random_();
    Assignments guard = Guard(AnyInterval().every, "same_rank");
    // A checkpoint is begun after each copy: there the bit flips.
    for (const char* often : {"checkpoint.in_memory_every", "checkpoint.every"}) {
      guard.push_back(absl::StrCat(often, "=", copy_every));
    }
    guard.push_back("checkpoint.keep=1");
    const auto states = std::make_shared<RankStates>();
    const PlaceVisitor visit = [&](const RunPlace& place) {
      if (place.where != RunPlace::Where::kCheckpoint) return;
      if (place.rank != rank || place.step + 1 != steps) return;
      const std::vector<StateTensor> state = states->strategies[static_cast<size_t>(rank)]->State();
      for (size_t i = 0; i < state.size(); ++i) {
        const Tensor& part = state[(tensor + i) % state.size()].tensor;
        if (part.elements() == 0) continue;
        FlipBit(part, bit);
        return;
      }
    };
    return Watch({.kind = kShards,
                  .layout = layout,
                  .guard = std::move(guard),
                  .place = absl::StrCat("rank ", rank, ", behind step ", steps),
                  .rank = rank,
                  .begin = steps - 1,
                  .steps = steps,
                  .must_be_seen = true,
                  .must_be_named = true},
                 Telling(layout->strategy, states), visit, steps + 1);
  }

  Flip AnyFlip(Flip::Target target, const Interval& at) {
    return {.target = target,
            .rank = static_cast<int>(Below(kFlipRanks)),
            .step = at.begin,
            .tensor = random_(),
            .bit = random_()};
  }

  // Whether a run without a guard was stopped by train.on_nan; an error where anything else did.
  static absl::StatusOr<bool> IsNotFinite(const absl::Status& ended) {
    if (absl::IsOutOfRange(ended)) return true;
    LS_RETURN_IF_ERROR(ended);
    return false;
  }

  static StrategyDefinition Flipping(const FlipLayout& layout, const Flip& flip) {
    return WithFlip(layout.strategy, flip, layout.TensorsOf(flip.target, flip.rank));
  }

  static std::string PlaceOf(const Flip& flip, const FlipLayout& layout) {
    return absl::StrCat("rank ", flip.rank, ", from step ", flip.step + 1, " on, target ",
                        static_cast<int>(flip.target), ", tensor ",
                        flip.tensor % layout.TensorsOf(flip.target, flip.rank));
  }

  // Trains a case with its guard and judges how that ends; `strategy` is the one that flips.
  // `steps`: of the run; 0: up to the check.
  absl::Status Watch(const Case& now, StrategyDefinition strategy, PlaceVisitor visit = nullptr,
                     int64_t steps = 0) {
    if (steps == 0) steps = now.steps;
    Assignments more = now.guard;
    more.insert(more.end(), now.saves.begin(), now.saves.end());
    if (is_quiet_due_) LS_RETURN_IF_ERROR(WatchQuietly(now, steps, more));
    const absl::Status watched = TrainSteps(*now.layout, std::move(strategy), steps, more,
                                            std::move(visit), AfterRun::kLeaveCopies)
                                     .status;
    const std::string message(watched.message());
    bool is_guards = false;  // replicas are compared before each save, too
    for (int64_t step = now.begin + 1; step <= now.steps; ++step) {
      is_guards =
          is_guards || absl::StrContains(message, absl::StrCat("step ", step, ": wrong bits: "));
    }
    const bool seen = is_guards || (now.is_not_finite && absl::IsOutOfRange(watched));
    FlipCounts& counts = CountsOf(counts_, now.is_not_finite ? kNotFinite : now.kind);
    const int64_t failures = counts.failures();
    counts.flips += 1;
    counts.changed += now.must_be_seen ? 1 : 0;
    counts.seen += seen ? 1 : 0;
    counts.missed += now.must_be_seen && !seen ? 1 : 0;
    // Whatever else ends the run, such as a check before the flip.
    counts.false_alarms += !now.must_be_seen && !seen && !watched.ok() ? 1 : 0;
    if (seen) counts.TakeNames(message, now.rank, now.must_be_named && !now.is_not_finite);
    // What train.on_nan stops, no check has judged.
    if (seen && !now.is_not_finite) counts.TakeRestart(GoesOn(now, steps, more));
    if (counts.failures() > failures) Note(now, watched, counts);
    return absl::OkStatus();
  }

  // Whether a stopped run, whose processors are right again, goes on to the bits of one that
  // nothing has disturbed.
  bool GoesOn(const Case& now, int64_t steps, const Assignments& more) {
    const auto saved = ListRunCheckpoints(options_.folder + "/out");
    // A check at or after the first checkpoint vouches for one, which has been kept.
    const bool must_be_left = !now.saves.empty() && now.checked_steps >= kShortest;
    if (must_be_left && (!saved.ok() || saved->empty())) return false;
    const FlipOutcome again =
        Train(options_.folder, {.strategy = now.layout->strategy,
                                .assignments = OfSteps(*now.layout, steps, more),
                                .resume = saved.ok() && !saved->empty()});
    const FlipOutcome plain =
        Train(options_.folder, {.strategy = now.layout->strategy,
                                .assignments = OfSteps(*now.layout, steps, {}),
                                .out = "plain"});
    return again.status.ok() && plain.status.ok() && again.hash == plain.hash &&
           again.losses.back() == plain.losses.back();
  }

  // The same run where nothing flips.
  absl::Status WatchQuietly(const Case& now, int64_t steps, const Assignments& more) {
    const StrategyDefinition& strategy = now.layout->strategy;
    const FlipOutcome plain = TrainSteps(*now.layout, strategy, steps);
    const FlipOutcome quiet = TrainSteps(*now.layout, strategy, steps, more);
    FlipCounts& counts = CountsOf(counts_, now.kind);
    counts.quiet_runs += 1;
    counts.false_alarms += quiet.status.ok() ? 0 : 1;
    if (!quiet.status.ok()) Note(now, quiet.status, counts);
    if (!quiet.status.ok() || quiet.SameAs(plain)) return absl::OkStatus();
    return absl::InternalError("the guard changed a run: " + strategy.name);
  }

  static void Note(const Case& now, const absl::Status& watched, FlipCounts& counts) {
    counts.wrong.push_back(absl::StrCat(
        now.kind, ", ", now.layout->strategy.name, ", ", now.place, ", check in step ", now.steps,
        ", ", now.guard[0], " ", now.guard[1], ": ", watched.ok() ? "no word" : watched.message()));
  }

  const FlipOptions& options_;
  std::mt19937_64 random_;
  const std::vector<FlipLayout> layouts_ = FlipLayouts();
  bool is_quiet_due_ = false;
  FlipsByKind counts_;
};

}  // namespace

absl::StatusOr<FlipsByKind> CountLastingFlips(const FlipOptions& options) {
  return LastinglyFlippedRuns(options).Run();
}

}  // namespace lockstep
