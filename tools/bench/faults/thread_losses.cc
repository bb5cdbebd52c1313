#include "tools/bench/faults/thread_losses.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/checkpoint/in_memory.h"
#include "core/config/command_line.h"
#include "core/config/legs.h"
#include "core/report/restart_log.h"
#include "core/run/elastic.h"
#include "core/run/leg/run_place.h"
#include "core/run/leg/training_run.h"
#include "models/models.h"
#include "strategies/presets.h"
#include "strategies/testing/watched_calls.h"
#include "tools/bench/faults/fault_runs.h"

namespace lockstep {
namespace {

using Where = RunPlace::Where;

constexpr int kRanks = 4;
constexpr int64_t kSteps = 400, kCheckpointEvery = 20, kCopyEvery = 7;
constexpr int64_t kStepsOfLeg = 40;
constexpr int64_t kLossesOfLegs = 8;           // threads are replaced
constexpr int64_t kLossesOfMesh = kRanks - 1;  // the run shrinks to one rank
// How long a loss waits for its rank and place, which the mesh of the moment may lack.
constexpr int64_t kPatientSteps = 3;
// Steps between the times of two losses: two ranks that are lost at once make one restart, and
// others may be a step further than the lost one.
constexpr int64_t kStepsBetween = kPatientSteps + 2;

constexpr std::array<const char*, 7> kFormations = {
    "ddp dp=4",        "fsdp dp=4",    "zero1 dp=4",         "zero2 dp=4",
    "gpipe pp=2 dp=2", "tp tp=2 dp=2", "fsdp_pipe pp=2 dp=2"};

struct PlaceKind {
  const char* name;
  Where where;
  // The rank is lost in one of the first calls to other ranks behind the place, which it has begun.
  bool is_in_call = false;
  bool needs_legs = false;  // calls are watched where a loss leaves the mesh as it is
};
constexpr std::array<PlaceKind, 7> kPlaces = {
    {{.name = "before a step", .where = Where::kStepBegin},
     {.name = "amid a step", .where = Where::kMicroBatch},
     {.name = "after a step", .where = Where::kStepEnd},
     {.name = "while a checkpoint is written", .where = Where::kCheckpoint},
     {.name = "amid a collective",
      .where = Where::kMicroBatch,
      .is_in_call = true,
      .needs_legs = true},
     {.name = "before the state moves to another mesh",
      .where = Where::kMeshChange,
      .needs_legs = true},
     {.name = "while the state moves to another mesh",
      .where = Where::kMeshChange,
      .is_in_call = true,
      .needs_legs = true}}};
// Calls of a rank that a loss in a call leaves alone: fewer than a change of mesh has.
constexpr int64_t kMostCallsBefore = 4;

// Where a rank is lost.
struct Loss {
  RunPlace place;
  bool is_in_call = false;
  int64_t calls_before = 0;  // where it is in a call
};

const char* NameOf(const Loss& loss) {
  for (const PlaceKind& kind : kPlaces) {
    if (kind.where == loss.place.where && kind.is_in_call == loss.is_in_call) return kind.name;
  }
  return "";
}

// Throws on a rank that comes to the place of the next loss. Told of places and calls by all ranks.
class Losses final : public CallWatcher {
 public:
  explicit Losses(std::vector<Loss> plan) : plan_(std::move(plan)) {}

  void Visit(const RunPlace& at) {
    const std::lock_guard lock(mutex_);
    if (come_.size() == plan_.size()) return;
    const Loss& next = plan_[come_.size()];
    if (at.step < next.place.step) return;
    const bool is_there = at.rank == next.place.rank && at.where == next.place.where;
    const bool is_late = at.step >= next.place.step + kPatientSteps;
    if (armed_ && at.rank == armed_->rank) armed_.reset();  // the calls of the place are over
    if (is_there && next.is_in_call && !is_late) {
      armed_ = at;
      calls_before_ = next.calls_before;
    }
    if (is_late || (is_there && !next.is_in_call)) Lose({.place = at});
  }

  void Began(int rank) override {
    const std::lock_guard lock(mutex_);
    if (!armed_ || armed_->rank != rank || calls_before_-- > 0) return;
    Lose({.place = *armed_, .is_in_call = true});
  }

  // Those that have come; when no rank runs any more.
  const std::vector<Loss>& come() const { return come_; }

 private:
  [[noreturn]] void Lose(const Loss& loss) {
    armed_.reset();
    come_.push_back(loss);
    throw StatusException(
        absl::UnavailableError(absl::StrCat("rank ", loss.place.rank, " is lost")));
  }

  std::mutex mutex_;
  const std::vector<Loss> plan_;
  std::vector<Loss> come_;
  std::optional<RunPlace> armed_;  // the rank there is lost in a call
  int64_t calls_before_ = 0;       // that it makes first
};

class LossyRuns {
 public:
  LossyRuns(const FaultOptions& options, FaultCounts& counts)
      : options_(options), counts_(counts), random_(options.seed) {}

  absl::Status Run() {
    LS_ASSIGN_OR_RETURN(config_, PrepareFaultRuns({.model = FaultModel::kGpt,
                                                   .steps = kSteps,
                                                   .checkpoint_every = kCheckpointEvery},
                                                  options_.folder));
    const int64_t most_runs = options_.count + 10;
    while (counts_.faults < options_.count && counts_.runs < most_runs) {
      LS_RETURN_IF_ERROR(OneRun());
    }
    if (counts_.faults < options_.count) {
      counts_.failures.push_back("runs ended before so many ranks were lost");
    }
    for (const auto& [place, count] : places_) {
      counts_.details.push_back(absl::StrCat(place, ": ", count));
    }
    return absl::OkStatus();
  }

 private:
  int64_t Below(int64_t limit) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(limit));
  }
  const char* AnyFormation() {
    return kFormations[static_cast<size_t>(Below(std::ssize(kFormations)))];
  }

  // A loss in each of `count` parts of the run of equal length, or soon after it, so that
  // checkpoints come between.
  std::vector<Loss> Plan(int64_t count, bool has_legs) {
    std::vector<Loss> plan;
    std::vector<PlaceKind> kinds(kPlaces.begin(), kPlaces.end());
    std::erase_if(kinds, [&](const PlaceKind& kind) { return kind.needs_legs && !has_legs; });
    const int64_t length = kSteps / count;
    for (int64_t i = 0; i < count; ++i) {
      const PlaceKind& kind = kinds[static_cast<size_t>(Below(std::ssize(kinds)))];
      RunPlace place = {.rank = static_cast<int>(Below(kRanks)),
                        .step = i * length + Below(length - kCheckpointEvery),
                        .where = kind.where};
      if (!plan.empty()) place.step = std::max(place.step, plan.back().place.step + kStepsBetween);
      if (place.where == Where::kCheckpoint) {
        place.step += kCheckpointEvery - 1 - place.step % kCheckpointEvery;
      }
      if (place.where == Where::kMeshChange) {
        const int64_t legs = std::max<int64_t>(1, (place.step + kStepsOfLeg - 1) / kStepsOfLeg);
        if (legs * kStepsOfLeg < kSteps) {
          place.step = legs * kStepsOfLeg;
        } else {
          place.where = Where::kMicroBatch;  // the last change is over
        }
      }
      plan.push_back({.place = place,
                      .is_in_call = kind.is_in_call,
                      .calls_before = kind.is_in_call && place.where == Where::kMeshChange
                                          ? Below(kMostCallsBefore)
                                          : 0});
    }
    return plan;
  }

  absl::Status OneRun() {
    const bool has_legs = counts_.runs % 2 == 0;
    CommandLine line;
    line.configs = {config_};
    line.out = absl::StrCat(options_.folder, "/run", counts_.runs);
    line.elastic = true;
    if (Below(2) == 0) {
      line.assignments.push_back(absl::StrCat("checkpoint.in_memory_every=", kCopyEvery));
    }
    Formation formation = {.strategy = "mesh"};
    std::string name;
    if (has_legs) {
      for (int64_t begin = 0; begin < kSteps; begin += kStepsOfLeg) {
        absl::StrAppend(&name, begin == 0 ? "" : "; ", kStepsOfLeg, ": ", AnyFormation());
      }
      LS_ASSIGN_OR_RETURN(formation.assignments, AssignmentsOfLegs(name));
    } else {
      name = AnyFormation();
      LS_ASSIGN_OR_RETURN(formation, Formation::Parse(name));
    }
    line.assignments.insert(line.assignments.end(), formation.assignments.begin(),
                            formation.assignments.end());
    const int64_t wanted = options_.count - counts_.faults;
    const auto losses = std::make_shared<Losses>(
        Plan(std::min(wanted, has_legs ? kLossesOfLegs : kLossesOfMesh), has_legs));
    const absl::StatusOr<EndedRun> ended = Train(line, formation.strategy, losses);
    counts_.runs += 1;
    counts_.faults += std::ssize(losses->come());
    for (const Loss& loss : losses->come()) places_[NameOf(loss)] += 1;
    const std::string failure = Judge(line.out, ended, std::ssize(losses->come()));
    options_.progress(absl::StrCat("run ", counts_.runs, ", ", name, ": ", losses->come().size(),
                                   " ranks lost, ",
                                   failure.empty() ? "went on to the same bits" : failure));
    if (!failure.empty()) {
      counts_.failures.push_back(absl::StrCat("run ", counts_.runs, ", ", name, ": ", failure));
    }
    return absl::OkStatus();
  }

  static absl::StatusOr<EndedRun> Train(const CommandLine& line, const std::string& name,
                                        const std::shared_ptr<Losses>& losses) {
    const std::vector<StrategyDefinition> strategies = LegStrategies();
    const auto strategy =
        std::find_if(strategies.begin(), strategies.end(),
                     [&](const StrategyDefinition& one) { return one.name == name; });
    if (strategy == strategies.end()) return absl::NotFoundError(name);
    const ModelFactory make_model = MakeModel;
    LS_ASSIGN_OR_RETURN(TrainingRun run, PrepareRun(line, *strategy, make_model, {}, strategies));
    run.visit = [losses](const RunPlace& place) { losses->Visit(place); };
    run.devices = WithWatchedCalls(run.devices, losses);
    return TrainElastic(std::move(run), {.command_line = line,
                                         .strategy = *strategy,
                                         .make_model = make_model,
                                         .strategies = strategies});
  }

  // What is wrong with a run that has lost so many ranks; empty: nothing.
  std::string Judge(const std::string& out, const absl::StatusOr<EndedRun>& ended, int64_t lost) {
    if (!ended.ok()) return absl::StrCat("ended: ", ended.status().message());
    for (const std::string& problem :
         {DifferenceFromUndisturbed(out, options_.folder, ended->reports[0].parameter_hash),
          LeftoversOf(out)}) {
      if (!problem.empty()) return problem;
    }
    if (PathExists(InMemoryFolder(out))) return InMemoryFolder(out) + " was left";
    const auto restarts = ReadRestarts(out);
    if (!restarts.ok()) return std::string(restarts.status().message());
    if (std::ssize(*restarts) != lost) {
      return absl::StrCat(restarts->size(), " losses are written down of ", lost);
    }
    // The steps that the last attempt has trained, of its last leg at least.
    if (lost > 0 && ended->reports[0].steps > kSteps - restarts->back().steps) {
      return "steps were trained anew that a checkpoint had";
    }
    for (const Restart& restart : *restarts) {
      if (restart.went_on()) counts_.seconds_to_go_on.push_back(restart.seconds);
    }
    return "";
  }

  const FaultOptions& options_;
  FaultCounts& counts_;
  std::mt19937_64 random_;
  std::string config_;
  std::map<std::string, int64_t> places_;  // losses, by where they came
};

}  // namespace

absl::StatusOr<FaultCounts> LoseThreads(const FaultOptions& options) {
  FaultCounts counts;
  LS_RETURN_IF_ERROR(LossyRuns(options, counts).Run());
  return counts;
}

FaultKind ThreadLossesKind() {
  return {.name = "thread_losses",
          .meaning =
              "ranks that are threads are lost, by injection; runs under --elastic must go on by "
              "themselves to the undisturbed run's bits, and leave nothing behind",
          .usual_count = 200,
          .run = LoseThreads};
}

}  // namespace lockstep
