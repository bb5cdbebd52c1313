#include "tools/bench/faults/process_kills.h"

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

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/base/subprocess.h"
#include "core/report/restart_log.h"
#include "tools/bench/faults/fault_runs.h"
#include "tools/launch/rank_processes.h"
#include "tools/launch/worker_group.h"

namespace lockstep {
namespace {

using Kind = LaunchedProcess::Kind;

constexpr int kRanks = 2;
constexpr int kKillsOfRun = 8;
constexpr int64_t kCheckpointEvery = 20;
constexpr int64_t kSteps = 400;
constexpr double kLongestSeconds = 120;  // for what must come soon
// Legs of one length each, so that each end is a change of mesh.
constexpr int64_t kStepsOfLeg = 40;
constexpr std::array<const char*, 5> kFormations = {"ddp dp=2", "fsdp dp=2", "gpipe pp=2",
                                                    "tp tp=2", "zero1 dp=2"};

enum class Moment { kStep, kCheckpoint, kChange, kStart };
constexpr std::array<std::pair<Moment, const char*>, 4> kMoments = {
    {{Moment::kStep, "within a step"},
     {Moment::kCheckpoint, "while a checkpoint is written"},
     {Moment::kChange, "at a change of mesh"},
     {Moment::kStart, "while ranks are started"}}};

const char* NameOf(Kind kind) {
  switch (kind) {
    case Kind::kRank:
      return "rank";
    case Kind::kWorker:
      return "worker";
    case Kind::kMpirun:
      return "mpirun";
    case Kind::kLauncher:
      return "launcher";
  }
  return "";
}

std::string Legs() {
  std::string legs;
  for (int64_t begin = 0; begin < kSteps; begin += kStepsOfLeg) {
    const size_t leg = static_cast<size_t>(begin / kStepsOfLeg);
    absl::StrAppend(&legs, begin == 0 ? "" : "; ", kStepsOfLeg, ": ",
                    kFormations[leg % kFormations.size()]);
  }
  return legs;
}

bool IsComplete(const std::string& out) { return PathExists(out + "/summary.json"); }

bool WritesCheckpoint(const std::string& out) {
  const auto names = ListFolder(out + "/checkpoints");
  return names.ok() && std::any_of(names->begin(), names->end(), [](const std::string& name) {
           return absl::StrContains(name, ".tmp");
         });
}

// Waits without a pause worth speaking of: what is awaited may be over soon. Whether it has come.
template <typename Condition>
bool Await(const Condition& condition) {
  const int64_t start = NowNanos();
  while (!condition()) {
    if (SecondsSince(start) > kLongestSeconds) return false;
    usleep(200);
  }
  return true;
}

class KilledRuns {
 public:
  KilledRuns(const FaultOptions& options, FaultCounts& counts)
      : options_(options), counts_(counts), random_(options.seed) {}

  absl::Status Run() {
    LS_ASSIGN_OR_RETURN(config_, PrepareFaultRuns({.model = FaultModel::kGpt,
                                                   .steps = kSteps,
                                                   .checkpoint_every = kCheckpointEvery},
                                                  options_.folder));
    const int64_t most_runs = options_.count + 10;  // each has a kill, but where a run was too fast
    while (counts_.faults < options_.count && counts_.runs < most_runs)
      LS_RETURN_IF_ERROR(OneRun());
    if (counts_.faults < options_.count) {
      counts_.failures.push_back("runs ended before so many processes were killed");
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

  absl::Status OneRun() {
    out_ = absl::StrCat(options_.folder, "/run", counts_.runs++);
    std::optional<Subprocess> launcher;
    LS_RETURN_IF_ERROR(Launch(launcher));
    const int64_t before = counts_.faults;
    const int64_t kills = std::min<int64_t>(kKillsOfRun, options_.count - counts_.faults);
    std::string failure;
    for (int64_t i = 0; i < kills && failure.empty() && !IsComplete(out_); ++i) {
      const auto& [moment, name] = kMoments[static_cast<size_t>(Below(std::ssize(kMoments)))];
      if (!AwaitMoment(moment)) {
        failure = "no step for two minutes";
        break;
      }
      const std::optional<Kind> killed = KillOne();
      if (!killed) continue;
      counts_.faults += 1;
      places_[absl::StrCat(NameOf(*killed), " ", name)] += 1;
      if (*killed == Kind::kLauncher) {
        launcher->Wait();
        failure = Orphans();
        LS_RETURN_IF_ERROR(Launch(launcher));
      }
    }
    if (!failure.empty()) launcher->Signal(SIGKILL);
    const ProcessResult result = launcher->Wait();
    if (failure.empty()) failure = Judge(result);
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
            {.arguments = {"tools/launch/launch", "--strategy", "mesh", "--launcher",
                           "build_defs/mpi_test.sh {ranks}", "--max_restarts", "1000", "--",
                           "--config", config_, "--out", out_, "--legs", Legs()}}));
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
        if (!Await([&] { return ended() || StepsLogged(out_) >= wanted; })) return false;
        usleep(static_cast<useconds_t>(Below(20'000)));
        return true;
      }
      case Moment::kCheckpoint:
        return Await([&] { return ended() || WritesCheckpoint(out_); });
      case Moment::kChange: {
        const int64_t change = std::min(kSteps, (steps / kStepsOfLeg + 1) * kStepsOfLeg);
        if (!Await([&] { return ended() || StepsLogged(out_) >= change; })) return false;
        usleep(static_cast<useconds_t>(Below(5'000)));
        return true;
      }
      case Moment::kStart:
        usleep(static_cast<useconds_t>(Below(500'000)));
        return true;
    }
    return false;
  }

  // Kills a process of the run: mostly a rank, sometimes one of those above the ranks. Nothing
  // where none is there at the moment.
  std::optional<Kind> KillOne() {
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
    if (!process.is_open() || !is_there ||
        pidfd_send_signal(process.get(), SIGKILL, nullptr, 0) != 0) {
      return std::nullopt;
    }
    return kind;
  }

  std::string Orphans() const {
    if (Await([&] { return ProcessesOf(out_).empty(); })) return "";
    return absl::StrCat(ProcessesOf(out_).size(), " processes are left without a launcher");
  }

  // What is wrong with a run whose launcher has ended.
  std::string Judge(const ProcessResult& result) {
    if (!result.ok()) return absl::StrCat("the launcher: ", result.Describe(), "\n", result.err);
    for (const std::string& problem :
         {Orphans(), DifferenceFromUndisturbed(out_, options_.folder), LeftoversOf(out_)}) {
      if (!problem.empty()) return problem;
    }
    const std::string folder = GroupFolder::PathOf(out_);
    if (PathExists(folder)) return folder + " was left";
    const auto restarts = ReadRestarts(out_);
    if (!restarts.ok()) return std::string(restarts.status().message());
    for (const Restart& restart : *restarts) {
      if (restart.seconds >= 0) counts_.seconds_to_go_on.push_back(restart.seconds);
    }
    return "";
  }

  const FaultOptions& options_;
  FaultCounts& counts_;
  std::mt19937_64 random_;
  std::string config_, out_;
  std::map<std::string, int64_t> places_;  // kills, by what was killed and when
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
              "kill -9 of ranks, workers, mpirun and launchers; runs must go on by "
              "themselves to the undisturbed run's bits, and leave nothing behind",
          .usual_count = 200,
          .run = KillProcesses};
}

}  // namespace lockstep
