#include "tools/bench/faults/process_kills.h"

#include <poll.h>
#include <signal.h>
extern "C" {            // which glibc 2.36 leaves out
#include <sys/pidfd.h>  // pidfd_open, pidfd_send_signal
}
#include <unistd.h>  // usleep

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/base/subprocess.h"
#include "core/checkpoint/in_memory.h"
#include "core/report/restart_log.h"
#include "tools/bench/faults/call_kill.h"
#include "tools/bench/faults/fault_runs.h"
#include "tools/launch/rank_processes.h"
#include "tools/launch/worker_group.h"

namespace lockstep {
namespace {

using Kind = LaunchedProcess::Kind;

constexpr int kRanks = 4;  // of the largest mesh, that of pp=2 and of tp=2
constexpr int kKillsOfRun = 8;
constexpr int64_t kCheckpointEvery = 20;
constexpr int64_t kCopyEvery = 1;  // of runs with copies in memory, so that a kill may meet one
constexpr int64_t kSteps = 400;
constexpr double kLongestSeconds = 120;  // for what must come soon
constexpr double kLongestRunSeconds = 600;
// When nothing of a run is left behind its launcher, which somebody has killed. A rank that nobody
// ends ends by itself, after run.timeout_seconds, which is 60: that must not pass for an end.
constexpr double kOrphanSeconds = 15;
constexpr char kNoStep[] = "no step for two minutes";
constexpr char kDyingRanks[] = "tools/bench/faults/dying_ranks.sh";
// Legs of one length each, so that each end is a change of mesh.
constexpr int64_t kStepsOfLeg = 40;
// Messages that a rank sends before the one that it dies at: those of a few steps at most.
constexpr int64_t kMostBefore = 60;
constexpr int64_t kMostBeforeInChange = 12;

enum class Moment { kStep, kCheckpoint, kChange, kStart };
// What a kill that is aimed at such a moment counts as; where it is not seen to have met a start, a
// checkpoint or a change, as one within a step.
constexpr std::array<std::pair<Moment, const char*>, 4> kMomentsBetween = {
    {{Moment::kStep, "within a step"},
     {Moment::kCheckpoint, "while a checkpoint is written"},
     {Moment::kChange, "at a change of mesh"},
     {Moment::kStart, "while ranks are started"}}};

// How a rank stood in a call when it was killed.
const char* StateIn(const CallKill& kill) {
  switch (kill.moment) {
    case CallMoment::kHasSent:
      return kill.is_data ? "its data sent" : "its announcement sent";
    case CallMoment::kIsAwaited:
      return "another rank waiting for it";
    case CallMoment::kWaits:
      return "waiting for another rank";
  }
  return "";
}

std::vector<std::string> Formations(FaultModel model) {
  std::vector<std::string> formations = {"ddp dp=2", "fsdp dp=2", "gpipe pp=2", "tp tp=2",
                                         "zero1 dp=2"};
  if (model == FaultModel::kExperts) formations.push_back("ep dp=2 ep=2");
  return formations;
}

const char* NameOf(Kind kind) {
  switch (kind) {
    case Kind::kRank:
      return "rank";
    case Kind::kWorker:
      return "worker";
    case Kind::kMpirun:
      return "mpirun or srun";
    case Kind::kLauncher:
      return "launcher";
  }
  return "";
}

bool IsComplete(const std::string& out) { return PathExists(out + "/summary.json"); }

// The checkpoint that is being written, by the name that it has until it is whole; empty: none.
std::string CheckpointDraft(const std::string& out) {
  const auto names = ListFolder(out + "/checkpoints");
  if (!names.ok()) return "";
  for (const std::string& name : *names) {
    // Other drafts are old checkpoints that are being removed.
    if (absl::StrContains(name, ".tmp") && !absl::StrContains(name, ".tmp-deleted")) return name;
  }
  return "";
}

// Whether the run has written down, at the end of the change, that it has changed its mesh behind
// so many steps.
bool HasChanged(const std::string& out, int64_t steps) {
  return absl::StrContains(ReadFile(out + "/metrics.jsonl").value_or(""),
                           absl::StrCat("{\"step\":", steps - 1, ",\"change_from\""));
}

bool ComesSoon(absl::FunctionRef<bool()> condition) { return Await(condition, kLongestSeconds); }

class KilledRuns {
 public:
  KilledRuns(const FaultOptions& options, FaultCounts& counts)
      : options_(options), counts_(counts), random_(options.seed) {}

  absl::Status Run() {
    const int64_t most_runs = options_.count + 10;  // each has a kill, but where a run was too fast
    while (counts_.faults < options_.count && counts_.runs < most_runs)
      LS_RETURN_IF_ERROR(OneRun());
    if (counts_.faults < options_.count) {
      counts_.failures.push_back("runs ended before so many processes were killed");
    }
    counts_.details.push_back(
        absl::StrCat("ranks amid calls to others: ", calls_, " of ", counts_.faults));
    counts_.details.push_back(
        absl::StrCat("in runs with copies in memory: ", with_copies_, " of ", counts_.faults));
    if (longest_orphan_seconds_ > 0) {
      counts_.details.push_back(absl::StrCat("nothing left behind killed launchers after at most ",
                                             FormatDuration(longest_orphan_seconds_)));
    }
    for (const auto& [state, count] : states_) {
      counts_.details.push_back(absl::StrCat(state, ": ", count));
    }
    for (const auto& [what, count] : places_) {
      counts_.details.push_back(absl::StrCat(what, ": ", count));
    }
    return absl::OkStatus();
  }

 private:
  int64_t Below(int64_t limit) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(limit));
  }

  // Makes the next run's files: of the models one after another, each under all of its formations.
  absl::Status Prepare() {
    const bool has_experts = counts_.runs % 2 == 1;
    const FaultModel model = has_experts ? FaultModel::kExperts : FaultModel::kGpt;
    folder_ = absl::StrCat(options_.folder, has_experts ? "/experts" : "/gpt");
    config_ = folder_ + "/workload.toml";
    if (!PathExists(config_)) {
      LS_RETURN_IF_ERROR(
          PrepareFaultRuns({.model = model, .steps = kSteps, .checkpoint_every = kCheckpointEvery},
                           folder_)
              .status());
    }
    const std::vector<std::string> formations = Formations(model);
    formations_.clear();
    for (int64_t leg = 0; leg < kSteps / kStepsOfLeg; ++leg) {
      formations_.push_back(
          formations[static_cast<size_t>(counts_.runs / 2 + leg) % formations.size()]);
    }
    out_ = absl::StrCat(options_.folder, "/run", counts_.runs++);
    kill_path_ = out_ + ".kill";
    has_copies_ = HasCopies(counts_.runs - 1);
    LS_ASSIGN_OR_RETURN(call_kill_, MapCallKill(kill_path_, /*make=*/true));
    return absl::OkStatus();
  }

  // Whether a run keeps copies of its state in memory beside its checkpoints on the disk: one of
  // two, and so of each model's runs.
  static bool HasCopies(int64_t run) { return (run + run / 2) % 2 == 1; }

  std::string Legs() const {
    return absl::StrJoin(formations_, "; ", [](std::string* legs, const std::string& formation) {
      absl::StrAppend(legs, kStepsOfLeg, ": ", formation);
    });
  }

  absl::Status OneRun() {
    LS_RETURN_IF_ERROR(Prepare());
    std::optional<Subprocess> launcher;
    LS_RETURN_IF_ERROR(Launch(launcher));
    const int64_t before = counts_.faults;
    const int64_t kills = std::min<int64_t>(kKillsOfRun, options_.count - counts_.faults);
    std::string failure;
    newest_ = 0;
    restarts_before_ = -1;
    for (int64_t i = 0; i < kills && failure.empty() && !IsComplete(out_); ++i) {
      // Each other kill comes amid a call of ranks, where time alone would seldom have it come; of
      // these, each other one amid a change of mesh.
      if (i % 2 == 0) {
        failure = FailureUntil(Moment::kStep);
        if (failure.empty() && !KillAmidCall(/*only_changes=*/i % 4 == 2)) failure = kNoStep;
        continue;
      }
      Moment moment =
          kMomentsBetween[static_cast<size_t>(Below(std::ssize(kMomentsBetween)))].first;
      if (moment == Moment::kChange && NextChange() == kSteps) moment = Moment::kStep;  // none left
      failure = FailureUntil(moment);
      if (!failure.empty() || IsComplete(out_)) break;
      const std::optional<Kind> killed = KillOne(moment);
      if (killed == Kind::kLauncher) {
        failure = Orphans(*launcher);
        LS_RETURN_IF_ERROR(Launch(launcher));
      }
    }
    if (!failure.empty()) {
      absl::StrAppend(&failure, "; at work are", ProcessesText());
      launcher->Signal(SIGKILL);
    }
    const auto [result, is_late] = WaitAtMost(*launcher, out_, kLongestRunSeconds);
    if (is_late && failure.empty()) failure = "not over after ten minutes";
    if (failure.empty()) {
      failure = Judge(result);
    } else {
      absl::StrAppend(&failure, "; the launcher: ", result.Describe(), "\n", result.err);
    }
    if (has_copies_) with_copies_ += counts_.faults - before;
    options_.progress(absl::StrCat("run ", counts_.runs, ": ", counts_.faults - before, " kills, ",
                                   failure.empty() ? "went on to the same bits" : failure));
    if (!failure.empty()) counts_.failures.push_back(absl::StrCat(out_, ": ", failure));
    return absl::OkStatus();
  }

  // Gives the command of the run: the same each time.
  absl::Status Launch(std::optional<Subprocess>& launcher) const {
    launcher.reset();
    LS_ASSIGN_OR_RETURN(
        Subprocess started,
        Subprocess::Start(
            {.arguments = {
                 "tools/launch/launch", "--strategy", "mesh", "--launcher",
                 absl::StrCat(options_.launcher, " ", kDyingRanks, " ", kill_path_),
                 "--max_restarts", "1000", "--", "--config", config_, "--out", out_, "--legs",
                 Legs(), "--set",
                 absl::StrCat("checkpoint.in_memory_every=", has_copies_ ? kCopyEvery : 0)}}));
    launcher.emplace(std::move(started));
    return absl::OkStatus();
  }

  // Waits for a moment of the kind; false: it did not come in a time in which it should have.
  bool AwaitMoment(Moment moment) {
    const auto ended = [this] { return IsComplete(out_); };
    const int64_t steps = StepsLogged(out_);
    switch (moment) {
      case Moment::kStep: {
        const int64_t wanted = std::min(kSteps, steps + 1 + Below(kCheckpointEvery * 2));
        if (!ComesSoon([&] { return ended() || StepsLogged(out_) >= wanted; })) return false;
        usleep(static_cast<useconds_t>(Below(20'000)));
        return true;
      }
      case Moment::kCheckpoint:
        return ComesSoon([&] { return ended() || !CheckpointDraft(out_).empty(); });
      case Moment::kChange: {
        const int64_t change = NextChange();
        // A leg's last checkpoint comes before the change.
        const auto begins = [&] {
          return ended() || (StepsLogged(out_) >= change && StepsSaved(out_) >= change);
        };
        if (!ComesSoon(begins)) return false;
        usleep(static_cast<useconds_t>(Below(2'000)));
        return true;
      }
      case Moment::kStart:
        usleep(static_cast<useconds_t>(Below(500'000)));
        return true;
    }
    return false;
  }

  int64_t RestartsThatWentOn() const {
    const auto restarts = ReadRestarts(out_).value_or(std::vector<Restart>());
    return std::count_if(restarts.begin(), restarts.end(),
                         [](const Restart& restart) { return restart.went_on(); });
  }

  // Steps behind which the mesh changes next; kSteps: behind none.
  int64_t NextChange() const { return (StepsLogged(out_) / kStepsOfLeg + 1) * kStepsOfLeg; }

  // Waits for `moment`. Returns what is wrong with the run by then; empty: nothing.
  std::string FailureUntil(Moment moment) { return AwaitMoment(moment) ? OldRanks() : kNoStep; }

  // Returns what is wrong if ranks from before a kill still train beside the new ones.
  std::string OldRanks() const {
    const std::vector<LaunchedProcess> processes = ProcessesOf(out_);
    const auto ranks =
        std::count_if(processes.begin(), processes.end(),
                      [](const LaunchedProcess& process) { return process.kind == Kind::kRank; });
    if (ranks <= kRanks) return "";
    return absl::StrCat(ranks, " ranks are at work, where a run has ", kRanks);
  }

  // Kills a process of the run at a moment that has come: mostly a rank, sometimes one of those
  // above the ranks. Nothing where none is there.
  std::optional<Kind> KillOne(Moment moment) {
    constexpr std::array<Kind, 10> kWeights = {
        Kind::kRank, Kind::kRank, Kind::kRank,   Kind::kRank,   Kind::kRank,
        Kind::kRank, Kind::kRank, Kind::kWorker, Kind::kMpirun, Kind::kLauncher};
    const Kind kind = kWeights[static_cast<size_t>(Below(std::ssize(kWeights)))];
    std::vector<LaunchedProcess> processes = ProcessesOf(out_);
    std::erase_if(processes, [kind](const LaunchedProcess& one) { return one.kind != kind; });
    if (processes.empty()) return std::nullopt;
    const LaunchedProcess& victim = processes[static_cast<size_t>(Below(std::ssize(processes)))];
    // A number may soon be another process's; a file descriptor is this one's for good.
    const FileDescriptor process(pidfd_open(victim.pid, 0));
    const std::vector<LaunchedProcess> now = ProcessesOf(out_);
    const bool is_there = std::any_of(
        now.begin(), now.end(), [&](const LaunchedProcess& one) { return one.pid == victim.pid; });
    newest_ = StepsSaved(out_);
    const std::string draft = CheckpointDraft(out_);
    const int64_t steps = StepsLogged(out_);
    const bool is_change = steps % kStepsOfLeg == 0 && 0 < steps && steps < kSteps &&
                           newest_ == steps && !HasChanged(out_, steps);
    const int64_t restarts = RestartsThatWentOn();
    // The restart before has not come to its first step.
    const bool is_start = restarts_before_ < 0 ? steps == 0 : restarts == restarts_before_;
    if (!process.is_open() || !is_there ||
        pidfd_send_signal(process.get(), SIGKILL, nullptr, 0) != 0) {
      return std::nullopt;
    }
    pollfd end = {.fd = process.get(), .events = POLLIN, .revents = 0};
    poll(&end, 1, -1);  // its end
    // What had begun before the kill and was not over when the process was gone, the kill has met.
    if (moment == Moment::kCheckpoint && (draft.empty() || CheckpointDraft(out_) != draft)) {
      moment = Moment::kStep;
    }
    if (moment == Moment::kChange && (!is_change || HasChanged(out_, steps))) {
      moment = Moment::kStep;
    }
    if (moment == Moment::kStart && !is_start) moment = Moment::kStep;
    counts_.faults += 1;
    killed_launcher_last_ = kind == Kind::kLauncher;
    restarts_before_ = restarts;
    for (const auto& [at, name] : kMomentsBetween) {
      if (at == moment) places_[absl::StrCat(NameOf(kind), " ", name)] += 1;
    }
    return kind;
  }

  // Kills a rank amid one of its next calls to others. Whether that, or the run's end, has come.
  bool KillAmidCall(bool only_changes) {
    const int rank = static_cast<int>(Below(kRanks));
    const CallMoment moment = kCallMoments[static_cast<size_t>(Below(std::ssize(kCallMoments)))];
    const int64_t newest = StepsSaved(out_), restarts = RestartsThatWentOn();
    call_kill_->Ask(rank, moment, Below(only_changes ? kMostBeforeInChange : kMostBefore),
                    only_changes);
    const bool has_come = ComesSoon([&] { return call_kill_->IsDone() || IsComplete(out_); });
    if (call_kill_->IsDone()) {
      newest_ = newest;
      restarts_before_ = restarts;
      counts_.faults += 1;
      killed_launcher_last_ = false;
      places_[absl::StrCat("rank amid ", Name(call_kill_->operation), ", ",
                           StateIn(*call_kill_))] += 1;
      places_[absl::StrCat("rank amid a call, ", call_kill_->is_of_change
                                                     ? "of a change of mesh"
                                                     : FormationAt(StepsLogged(out_)))] += 1;
      calls_ += 1;
    }
    call_kill_->Withdraw();
    return has_come;
  }

  // The formation of the steps around `step`.
  std::string FormationAt(int64_t step) const {
    const auto leg = [](int64_t at) { return std::min(at, kSteps - 1) / kStepsOfLeg; };
    if (step > 0 && leg(step - 1) != leg(step + 1)) return "close to a change of mesh";
    return formations_[static_cast<size_t>(leg(step))];
  }

  std::string ProcessesText() const {
    std::string text;
    for (const LaunchedProcess& process : ProcessesOf(out_)) {
      absl::StrAppend(&text, " ", NameOf(process.kind), " ", process.pid);
    }
    return text;
  }

  // What is left of a run whose launcher was killed, while ranks still train by themselves.
  std::string Orphans(Subprocess& launcher) {
    ComesSoon([&] { return launcher.HasEnded(); });
    const int64_t begin = NowNanos();
    std::string failure;
    if (!Await([&] { return ProcessesOf(out_).empty(); }, kOrphanSeconds)) {
      failure = absl::StrCat("without a launcher are left", ProcessesText());
    }
    longest_orphan_seconds_ = std::max(longest_orphan_seconds_, SecondsSince(begin));
    WaitAtMost(launcher, out_, kOrphanSeconds);
    return failure;
  }

  // What the ranks of a restart went on from.
  std::string StateOf(const Restart& restart) const {
    if (restart.state.empty()) return "went on from the first step";
    return absl::StrCat("went on from ", restart.state,
                        has_copies_ ? ", in runs with copies in memory" : "");
  }

  // What is wrong with a run whose launcher has ended.
  std::string Judge(const ProcessResult& result) {
    if (!result.ok()) return absl::StrCat("the launcher: ", result.Describe(), "\n", result.err);
    const std::vector<LaunchedProcess> left = ProcessesOf(out_);
    if (!left.empty()) return absl::StrCat("left are", ProcessesText());
    for (const std::string& problem :
         {DifferenceFromUndisturbed(out_, folder_), LeftoversOf(out_)}) {
      if (!problem.empty()) return problem;
    }
    const std::string folder = GroupFolder::PathOf(out_);
    if (PathExists(folder)) return folder + " was left";
    if (PathExists(InMemoryFolder(out_))) return InMemoryFolder(out_) + " was left";
    const auto restarts = ReadRestarts(out_);
    if (!restarts.ok()) return std::string(restarts.status().message());
    for (size_t i = 1; i < restarts->size(); ++i) {
      if ((*restarts)[i].steps < (*restarts)[i - 1].steps) return "a restart went back further";
    }
    // A new launcher begins without writing a restart down, and a kill at the very end makes none.
    const bool has_restarted =
        !killed_launcher_last_ && RestartsThatWentOn() > std::max<int64_t>(0, restarts_before_);
    if (has_restarted && restarts->back().steps < newest_) {
      return absl::StrCat("went on from step ", restarts->back().steps,
                          " where there was a checkpoint of step ", newest_);
    }
    for (const Restart& restart : *restarts) {
      if (!restart.went_on()) continue;
      counts_.seconds_to_go_on.push_back(restart.seconds);
      states_[StateOf(restart)] += 1;
    }
    return "";
  }

  const FaultOptions& options_;
  FaultCounts& counts_;
  std::mt19937_64 random_;
  // The run at hand.
  std::string folder_;  // its model's: the configuration and the undisturbed run
  std::string config_, out_, kill_path_;
  bool has_copies_ = false;              // of its state, in memory
  std::vector<std::string> formations_;  // by leg
  CallKill* call_kill_ = nullptr;
  int64_t newest_ = 0;  // steps behind the newest checkpoint on the disk before the last kill
  bool killed_launcher_last_ = false;
  int64_t restarts_before_ = -1;           // that went on by the last kill; -1: there was none
  std::map<std::string, int64_t> places_;  // kills, by what was killed and when
  std::map<std::string, int64_t> states_;  // restarts, by what they went on from
  int64_t calls_ = 0;                      // kills amid calls
  int64_t with_copies_ = 0;                // kills in runs with copies in memory
  double longest_orphan_seconds_ = 0;      // from a launcher's death to the last process's
};

}  // namespace

absl::StatusOr<FaultCounts> KillProcesses(const FaultOptions& options) {
  FaultCounts counts;
  LS_RETURN_IF_ERROR(KilledRuns(options, counts).Run());
  return counts;
}

FaultKind ProcessKillsKind() {
  return {.name = "process_kills",
          .meaning =
              "kill -9 of ranks, workers, mpirun or srun, and launchers; runs must go on by "
              "themselves to the undisturbed run's bits, and leave nothing behind",
          .usual_count = 200,
          .run = KillProcesses};
}

}  // namespace lockstep
