#include "tools/bench/faults/environment_faults.h"

#include <signal.h>
#include <sys/resource.h>  // prlimit
#include <unistd.h>        // usleep

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/base/subprocess.h"
#include "tools/bench/faults/fault_runs.h"
#include "tools/bench/faults/own_mounts.h"
#include "tools/bench/foresight/two_hosts.h"
#include "tools/experiment/paths.h"
#include "tools/launch/rank_processes.h"
#include "tools/launch/worker_group.h"

namespace lockstep {
namespace {

using Fault = EnvironmentFault;

constexpr int64_t kSteps = 500, kCheckpointEvery = 20;
constexpr int64_t kFirstStep = 25, kLastStep = 250;  // of a fault
constexpr double kTimeoutSeconds = 2;                // run.timeout_seconds
// When a run must be over, behind the timeout. Ranks need a second for their last words, a busy
// machine several times that. A launcher that cannot reach a host gets ten seconds more to end.
constexpr double kEndSeconds = 6, kUnreachableEndSeconds = 20;
constexpr double kLongestWaitSeconds = 120;  // for a step, and for a run that goes on to its end
// After the launcher. Ranks that nobody ends would end by themselves after the timeout.
constexpr double kOrphanSeconds = 1;
constexpr unsigned kLinkSeconds = 3;
constexpr int64_t kDiskBytes = 16 << 20;
constexpr char kNetwork[] = "tools/bench/foresight/two_hosts.sh";

struct Description {
  const char* name;
  std::vector<const char*> causes;  // the message has one of these
  bool has_threads, has_processes;
  double end_seconds = kEndSeconds;
};

Description Describe(Fault fault) {
  switch (fault) {
    case Fault::kStoppedRank:
      return {"a rank stopped (SIGSTOP)", {"no answer within"}, false, true};
    case Fault::kRestartedRank:
      return {"a rank stopped, restarts allowed", {"no answer within"}, false, true};
    case Fault::kLinkDown:
      return {"a link taken down", {"no answer within"}, false, true, kUnreachableEndSeconds};
    case Fault::kFullDisk:
      return {"a full disk", {"No space left on device"}, true, true};
    case Fault::kFileSizeLimit:
      return {"a limit of file sizes", {"File too large"}, true, true};
    case Fault::kReadOnlyDisk:
      return {"a disk that became read-only", {"Read-only file system"}, true, true};
    case Fault::kRemovedDirectory:
      return {"the run's directory removed", {"was removed"}, true, true};
    case Fault::kTwoRuns:
      return {"two runs in one directory",
              {"another program is using this run directory", "another launcher runs this run",
               "another program has begun a run here"},
              true,
              true};
  }
  return {"", {}, false, false};
}

// The rank of a process that mpirun has started; empty: it is none.
std::string RankOf(pid_t process) {
  const std::string environment =
      ReadFile(absl::StrCat("/proc/", process, "/environ")).value_or("");
  for (const auto variable : absl::StrSplit(environment, '\0')) {
    absl::string_view value = variable;
    if (absl::ConsumePrefix(&value, "OMPI_COMM_WORLD_RANK=")) return std::string(value);
  }
  return "";
}

// One run, and what is done to it.
class DisturbedRun {
 public:
  DisturbedRun(Fault fault, bool are_processes, std::string folder, std::string config,
               std::string undisturbed, std::mt19937_64& random)
      : fault_(fault),
        are_processes_(are_processes),
        folder_(std::move(folder)),
        config_(std::move(config)),
        undisturbed_(std::move(undisturbed)),
        random_(random),
        out_(folder_ + "/out") {}

  // Makes what the fault needs; PermissionDenied where the machine does not permit it.
  absl::Status Prepare() {
    LS_RETURN_IF_ERROR(MakeDirectories(folder_));
    return PrepareMachine();
  }

  // Brings the fault about.
  absl::Status Run() {
    if (fault_ == Fault::kTwoRuns) return RunTwo();
    LS_ASSIGN_OR_RETURN(Subprocess run, Start());
    const int64_t step = kFirstStep + Below(kLastStep - kFirstStep);
    // A busy machine may still write the first checkpoint when later steps are done.
    const auto has_come_so_far = [&] {
      return StepsLogged(Seen(out_)) >= step && StepsSaved(Seen(out_)) > 0;
    };
    if (!Await(has_come_so_far, kLongestWaitSeconds)) {
      return Failed("no step or no checkpoint for two minutes");
    }
    usleep(static_cast<useconds_t>(Below(20'000)));
    const int64_t newest = StepsSaved(Seen(out_));
    LS_RETURN_IF_ERROR(Disturb());
    const int64_t begin = NowNanos();
    const ProcessResult result = End(run);
    seconds_ = SecondsSince(begin);
    JudgeEnd(result, newest);
    if (!failure_.empty()) return absl::OkStatus();
    if (fault_ == Fault::kRestartedRank) return JudgeCurve();
    LS_RETURN_IF_ERROR(Mend());
    LS_ASSIGN_OR_RETURN(Subprocess again, Start(/*resume=*/fault_ != Fault::kRemovedDirectory));
    const ProcessResult end = End(again);
    if (!end.ok()) return Failed(absl::StrCat("does not go on: ", end.Describe(), "\n", end.err));
    return JudgeCurve();
  }

  double seconds() const { return seconds_; }
  const std::string& failure() const { return failure_; }

 private:
  int64_t Below(int64_t limit) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(limit));
  }

  void Fail(const std::string& failure) {
    if (failure_.empty()) failure_ = failure;
  }
  absl::Status Failed(const std::string& failure) {
    Fail(failure);
    return absl::OkStatus();
  }

  // The end of a program, which is a failure where it does not come by itself.
  ProcessResult End(Subprocess& run) {
    WatchedEnd end = WaitAtMost(run, out_, kLongestWaitSeconds);
    if (end.is_late) Fail("not over after two minutes");
    return std::move(end.result);
  }

  std::string Seen(const std::string& path) const { return disk_ ? disk_->Seen(path) : path; }

  absl::Status PrepareMachine() {
    if (fault_ == Fault::kFullDisk || fault_ == Fault::kReadOnlyDisk) {
      LS_ASSIGN_OR_RETURN(OwnMounts disk, OwnMounts::Make(folder_, kDiskBytes));
      disk_.emplace(std::move(disk));
    }
    if (fault_ == Fault::kLinkDown) {
      if (PathExists("/var/run/netns/lockstep-0")) {
        return absl::PermissionDeniedError(
            absl::StrCat("two hosts are there already, of another program or one that was killed; ",
                         kNetwork, " down removes them"));
      }
      absl::StatusOr<TwoHosts> hosts = TwoHosts::Create(kNetwork, "1gbit");
      if (!hosts.ok()) {
        return absl::PermissionDeniedError(absl::StripAsciiWhitespace(hosts.status().message()));
      }
      hosts_.emplace(*std::move(hosts));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Subprocess> Start(bool resume = false) const {
    std::vector<std::string> words;
    const bool stops = fault_ == Fault::kStoppedRank || fault_ == Fault::kRestartedRank;
    const int ranks = stops ? 4 : 2;
    // Nor does a launcher that may start ranks again begin anew in a directory that was removed.
    const bool has_restarts = fault_ == Fault::kRestartedRank || fault_ == Fault::kRemovedDirectory;
    if (are_processes_) {
      const std::string launcher = hosts_ ? absl::StrJoin(hosts_->Mpirun(), " ")
                                          : std::string("build_defs/mpi_test.sh {ranks}");
      words = {"tools/launch/launch",
               "--strategy",
               "ddp",
               "--ranks",
               absl::StrCat(ranks),
               "--max_restarts",
               has_restarts ? "3" : "0",
               "--launcher",
               launcher,
               "--"};
    } else {
      words = {"strategies/ddp/main"};
    }
    words.insert(words.end(),
                 {"--config", config_, "--out", out_, "--set", absl::StrCat("mesh.dp=", ranks),
                  "--set", absl::StrCat("run.timeout_seconds=", kTimeoutSeconds), "--set",
                  "checkpoint.on_damage=stop"});
    if (resume && !are_processes_) words.push_back("--resume");  // the launcher does by itself
    return Subprocess::Start({.arguments = disk_ ? disk_->Inside(words) : words});
  }

  absl::Status Disturb() {
    switch (fault_) {
      case Fault::kStoppedRank:
      case Fault::kRestartedRank: {
        const std::vector<pid_t> ranks = Ranks();
        if (ranks.empty()) return Failed("there is no rank");
        const pid_t victim = ranks[static_cast<size_t>(Below(std::ssize(ranks)))];
        stopped_ = RankOf(victim);
        if (stopped_.empty()) return Failed("mpirun has not told a process its rank");
        kill(victim, SIGSTOP);
        return absl::OkStatus();
      }
      case Fault::kLinkDown:
        return Ip("down");
      case Fault::kFullDisk:
        return disk_->Shell("head -c 1000000000 /dev/zero >\"$0/ballast\" 2>/dev/null; true",
                            folder_);
      case Fault::kFileSizeLimit:
        for (const pid_t rank : Ranks()) {
          rlimit limit = {};
          prlimit(rank, RLIMIT_FSIZE, nullptr, &limit);
          limit.rlim_cur = 64;
          prlimit(rank, RLIMIT_FSIZE, &limit, nullptr);
        }
        return absl::OkStatus();
      case Fault::kReadOnlyDisk:
        // The second step finds the disk busy while a checkpoint is being written to it.
        return disk_->Shell(
            "cd \"$0\" && until mount --bind . . && mount -o remount,bind,ro \"$0\"; do umount -l "
            "\"$0\"; sleep 0.01; done 2>/dev/null",
            out_ + "/checkpoints");
      case Fault::kRemovedDirectory:
        if (Await([&] { return RemoveTree(out_), !PathExists(out_); }, kLongestWaitSeconds)) {
          return absl::OkStatus();
        }
        return Failed("the directory comes back");
      case Fault::kTwoRuns:
        break;
    }
    return absl::OkStatus();
  }

  // Takes the cause away.
  absl::Status Mend() {
    if (fault_ == Fault::kLinkDown) {
      LS_RETURN_IF_ERROR(Ip("up"));
      sleep(kLinkSeconds);  // until both ends have found each other
      return absl::OkStatus();
    }
    if (fault_ == Fault::kFullDisk) return disk_->Shell("rm \"$0/ballast\"", folder_);
    if (fault_ == Fault::kReadOnlyDisk) {
      return disk_->Shell("while umount -l \"$0\" 2>/dev/null; do :; done", out_ + "/checkpoints");
    }
    return absl::OkStatus();
  }

  absl::Status Ip(const char* state) const {
    LS_ASSIGN_OR_RETURN(const ProcessResult result,
                        RunProcess({.arguments = {FindOnPath("ip"), "-n", "lockstep-0", "link",
                                                  "set", "eth0", state}}));
    return result.ok() ? absl::OkStatus() : absl::PermissionDeniedError(result.err);
  }

  // The ranks' processes; those of threads are one.
  std::vector<pid_t> Ranks() const {
    std::vector<pid_t> ranks;
    for (const LaunchedProcess& process : ProcessesOf(out_)) {
      if (process.kind == LaunchedProcess::Kind::kRank) ranks.push_back(process.pid);
    }
    return ranks;
  }

  absl::Status RunTwo() {
    LS_ASSIGN_OR_RETURN(Subprocess first, Start());
    const int64_t step = Below(4) == 0 ? 0 : Below(kLastStep);
    Await([&] { return StepsLogged(out_) >= step; }, kLongestWaitSeconds);
    const int64_t begin = NowNanos();
    LS_ASSIGN_OR_RETURN(Subprocess second, Start());
    // Where both began at once, either is refused, and the other one trains to its end.
    Await([&] { return first.HasEnded() || second.HasEnded(); }, kLongestWaitSeconds);
    seconds_ = SecondsSince(begin);
    ProcessResult loser = End(second);
    ProcessResult winner = End(first);
    if (loser.ok()) std::swap(loser, winner);
    if (!winner.ok()) return Failed(absl::StrCat("the first run ends: ", winner.err));
    JudgeMessages(loser);
    return JudgeCurve();
  }

  void JudgeMessages(const ProcessResult& result) {
    const std::vector<std::string> messages = MessagesOf(result.err);
    if (result.ok()) Fail("the run ends well");
    if (seconds_ > kTimeoutSeconds + Describe(fault_).end_seconds) {
      Fail(absl::StrCat("ends after ", seconds_, " s"));
    }
    if (messages.size() != 1) {
      Fail(absl::StrCat(messages.size(), " messages:\n", absl::StrJoin(messages, "\n")));
    } else {
      JudgeCause(messages[0]);
    }
  }

  void JudgeCause(const std::string& message) {
    const std::vector<const char*> causes = Describe(fault_).causes;
    const bool is_named = std::any_of(causes.begin(), causes.end(), [&](const char* cause) {
      return absl::StrContains(message, cause);
    });
    if (!is_named) Fail("the cause is not named: " + message);
    if (stopped_.empty()) return;
    // Other ranks are mentioned, too, with their last calls.
    const std::string rank = "rank " + stopped_;
    const bool is_blamed = absl::StrContains(message, rank + " did not come") ||
                           absl::StrContains(message, rank + ": does not answer");
    if (!is_blamed) Fail(absl::StrCat(rank, ", which was stopped, is not named: ", message));
  }

  // `newest`: the newest checkpoint before the fault.
  void JudgeEnd(const ProcessResult& result, int64_t newest) {
    if (fault_ == Fault::kRestartedRank) {
      std::vector<std::string> messages = MessagesOf(result.err);
      // The ranks' own word; the launcher's table of restarts repeats it behind other columns.
      std::erase_if(messages, [](const std::string& message) {
        return !absl::StartsWith(message, "no answer within");
      });
      if (!result.ok()) Fail("does not go on by itself: " + result.err);
      if (messages.size() != 1) {
        Fail(absl::StrCat(messages.size(), " messages: ", result.err));
      } else {
        JudgeCause(messages[0]);
      }
    } else {
      JudgeMessages(result);
    }
    const bool is_removed = fault_ == Fault::kRemovedDirectory;
    if (is_removed && PathExists(out_)) Fail("the removed directory was made again");
    if (!is_removed && StepsSaved(Seen(out_)) < newest) {
      Fail(absl::StrCat("the checkpoint after ", newest, " steps is lost"));
    }
    if (!Await([&] { return ProcessesOf(out_).empty(); }, kOrphanSeconds)) {
      Fail("processes are left");
    }
    if (hosts_ && !Await([&] { return HostsAreEmpty(); }, kOrphanSeconds)) {
      Fail("mpirun's daemons are left");
    }
    if (PathExists(GroupFolder::PathOf(out_))) Fail(GroupFolder::PathOf(out_) + " was left");
  }

  // Whether no process is left on the two hosts, such as a daemon of mpirun's.
  static bool HostsAreEmpty() {
    const auto on = [](const char* host) {
      const auto result = RunProcess({.arguments = {FindOnPath("ip"), "netns", "pids", host}});
      return result.ok() ? result->out : "";
    };
    return on("lockstep-0").empty() && on("lockstep-1").empty();
  }

  absl::Status JudgeCurve() {
    for (const std::string& problem :
         {DifferenceFromUndisturbed(Seen(out_), undisturbed_), LeftoversOf(Seen(out_))}) {
      if (!problem.empty()) return Failed(problem);
    }
    return absl::OkStatus();
  }

  const Fault fault_;
  const bool are_processes_;
  const std::string folder_, config_, undisturbed_;
  std::mt19937_64& random_;
  const std::string out_;
  std::optional<OwnMounts> disk_;
  std::optional<TwoHosts> hosts_;
  std::string stopped_;  // the rank that was stopped; empty: none
  double seconds_ = 0;   // from the fault to the run's end
  std::string failure_;
};

}  // namespace

std::vector<EnvironmentFault> AllEnvironmentFaults() {
  return {Fault::kStoppedRank,   Fault::kRestartedRank, Fault::kLinkDown,         Fault::kFullDisk,
          Fault::kFileSizeLimit, Fault::kReadOnlyDisk,  Fault::kRemovedDirectory, Fault::kTwoRuns};
}

std::vector<EnvironmentFault> UnprivilegedEnvironmentFaults() {
  return {Fault::kStoppedRank, Fault::kRestartedRank, Fault::kFileSizeLimit,
          Fault::kRemovedDirectory, Fault::kTwoRuns};
}

std::vector<std::string> MessagesOf(const std::string& err) {
  std::vector<std::string> messages;
  for (const auto line : absl::StrSplit(err, '\n')) {
    const bool is_banner = absl::StartsWith(line, "  ") || absl::StartsWith(line, "faults under ");
    if (!is_banner && !absl::StripAsciiWhitespace(line).empty()) messages.emplace_back(line);
  }
  return messages;
}

absl::StatusOr<FaultCounts> DisturbEnvironment(const FaultOptions& options,
                                               const std::vector<EnvironmentFault>& faults) {
  LS_ASSIGN_OR_RETURN(
      const std::string config,
      PrepareFaultRuns(
          {.model = FaultModel::kGpt, .steps = kSteps, .checkpoint_every = kCheckpointEvery},
          options.folder));
  FaultCounts counts;
  std::mt19937_64 random(options.seed);
  for (const Fault fault : faults) {
    const Description what = Describe(fault);
    int64_t brought_about = 0;
    double longest = 0;
    std::string not_permitted;
    for (int i = 0; i < options.count; ++i) {
      const bool are_processes =
          what.has_processes && (!what.has_threads || (i + static_cast<int>(fault)) % 2 == 1);
      DisturbedRun run(fault, are_processes,
                       absl::StrCat(options.folder, "/environment", counts.runs), config,
                       options.folder, random);
      const absl::Status prepared = run.Prepare();
      if (absl::IsPermissionDenied(prepared) && i == 0) {
        not_permitted = std::string(prepared.message());
        break;
      }
      LS_RETURN_IF_ERROR(prepared);
      LS_RETURN_IF_ERROR(run.Run());
      counts.runs += 1;
      counts.faults += 1;
      brought_about += 1;
      longest = std::max(longest, run.seconds());
      const std::string where =
          absl::StrCat(what.name, are_processes ? ", processes" : ", threads");
      options.progress(
          absl::StrCat(where, ": ", run.failure().empty() ? "as it must" : run.failure()));
      if (!run.failure().empty())
        counts.failures.push_back(absl::StrCat(where, ": ", run.failure()));
    }
    counts.details.push_back(not_permitted.empty()
                                 ? absl::StrCat(what.name, ": ", brought_about,
                                                ", over after at most ", FormatDuration(longest))
                                 : absl::StrCat(what.name, ": NOT TRIED: ", not_permitted));
  }
  return counts;
}

FaultKind EnvironmentFaultsKind() {
  return {
      .name = "environment",
      .meaning =
          "ranks are stopped, links taken down, disks full or read-only, directories removed or "
          "used twice; runs must end with one message in time and lose no checkpoint",
      .usual_count = 10,
      .run = [](const FaultOptions& options) {
        return DisturbEnvironment(options, AllEnvironmentFaults());
      }};
}

}  // namespace lockstep
