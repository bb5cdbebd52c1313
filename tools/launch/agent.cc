#include "tools/launch/agent.h"

#include <fcntl.h>  // O_RDONLY
#include <signal.h>
#include <string.h>  // sigabbrev_np
#include <sys/stat.h>
#include <unistd.h>  // pread

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/signal_watcher.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/checkpoint/in_memory.h"
#include "core/checkpoint/removed_directory.h"
#include "core/report/error_file.h"
#include "core/report/restart_log.h"
#include "core/run/directory/run_directory.h"
#include "core/run/directory/run_lock.h"
#include "core/run/restart_limit.h"
#include "core/run/saving/best_watch.h"
#include "core/run/stop/exit_codes.h"
#include "core/run/stop/run_signals.h"
#include "nlohmann/json.hpp"
#include "tools/launch/discovery.h"
#include "tools/launch/file_watch.h"
#include "tools/launch/worker_group.h"

namespace lockstep {
namespace {

constexpr int64_t kPollNanos = 20'000'000;
constexpr double kLongestWaitSeconds = 600;
// An NFS server keeps the locks of a host that has died for 90 s, if nothing else is set.
constexpr double kLongestLockSeconds = 120;
// A launcher that cannot reach a host waits for ever to hear that its ranks have ended.
constexpr double kLongestFarewellSeconds = 10;
// Ctrl-C reaches a program from the terminal and again from who has started it: one wish.
constexpr double kOneWishSeconds = 1;
constexpr std::array<int, 4> kStopSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

// The step of the last whole row of a losses.csv; -1: there is none.
int64_t LastStep(const std::string& path) {
  struct stat found;
  const auto file = OpenRegularFile(path, O_RDONLY);
  if (!file.ok() || fstat(file->get(), &found) != 0) return -1;
  std::array<char, 256> tail;  // two rows have less
  const off_t from = std::max<off_t>(0, found.st_size - static_cast<off_t>(tail.size()));
  const ssize_t size = pread(file->get(), tail.data(), tail.size(), from);
  const std::string text(tail.data(), static_cast<size_t>(std::max<ssize_t>(0, size)));
  const size_t end = text.rfind('\n');
  if (end == std::string::npos || end == 0) return -1;
  const size_t before = text.rfind('\n', end - 1);
  if (before == std::string::npos) return -1;  // the header alone
  const std::string row = text.substr(before + 1, end - before - 1);
  int64_t step = -1;
  return absl::SimpleAtoi(row.substr(0, row.find(',')), &step) ? step : -1;
}

// Steps behind the newest checkpoint on the disk; 0: there is none.
int64_t StepsOnDisk(const std::string& out) {
  const auto found = ListCheckpoints(out + "/checkpoints");
  return found.ok() && !found->empty() ? found->back().step : 0;
}

// What ranks go on from.
struct SavedState {
  int64_t steps = 0;  // behind it
  bool is_in_memory = false;
};

// The newest copy in memory that a run has told of: steps behind it; nullopt: none.
std::optional<int64_t> StepsOfToldCopy(const std::string& out) {
  const std::string rows = ReadFile(out + "/metrics.jsonl").value_or("");
  constexpr char kMember[] = "\"copy_in_memory\"";
  const auto steps = nlohmann::json::json_pointer("/copy_in_memory/steps");
  // A kill may have cut the last row off.
  size_t member = rows.rfind(kMember);
  while (member != std::string::npos) {
    const size_t begin = rows.rfind('\n', member) + 1;  // npos + 1 = 0
    const auto row = ParseJson(rows.substr(begin, rows.find('\n', member) - begin));
    if (row.is_object() && row.contains(steps) && row[steps].is_number_integer()) {
      return row[steps].get<int64_t>();
    }
    member = begin == 0 ? std::string::npos : rows.rfind(kMember, begin - 1);
  }
  return std::nullopt;
}

// nullopt: ranks begin with the first step. An error where it cannot be found out what there is:
// ranks that began with the first step would set the run aside.
absl::StatusOr<std::optional<SavedState>> Newest(const std::string& out) {
  std::optional<SavedState> newest;
  LS_ASSIGN_OR_RETURN(const std::vector<FoundCheckpoint> found, ListRunCheckpoints(out));
  if (!found.empty()) {
    newest = {.steps = found.back().step, .is_in_memory = IsInMemory(found.back().path)};
  }
  // A machine without ranks has no folder for copies, and hears of the others' from the run alone.
  if (IsDirectory(InMemoryFolder(out))) return newest;
  const std::optional<int64_t> elsewhere = StepsOfToldCopy(out);
  if (elsewhere && (!newest || *elsewhere > newest->steps)) {
    newest = {.steps = *elsewhere, .is_in_memory = true};
  }
  return newest;
}

absl::StatusOr<std::optional<int64_t>> NewestStep(const std::string& out) {
  LS_ASSIGN_OR_RETURN(const std::optional<SavedState> newest, Newest(out));
  return newest ? std::optional<int64_t>(newest->steps) : std::nullopt;
}

// A run writes its summary behind its last checkpoint, which it may have been told not to write
// (checkpoint.keep = 0), and removes the summary when it goes on with more steps. A run that
// validation.patience has ended is complete where ranks that go on would end there too: with more
// patience they train on.
absl::StatusOr<bool> IsComplete(const AgentOptions& options) {
  const auto summary = ParseJson(ReadFile(options.out + "/summary.json").value_or(""));
  const auto number = [&summary](const char* key) -> int64_t {
    const bool has = summary.is_object() && summary.contains(key);
    return has && summary[key].is_number_integer() ? summary[key].get<int64_t>() : -1;
  };
  const int64_t steps = number("steps");
  if (steps == options.steps) return true;
  if (number("ended_early_of_steps") != options.steps) return false;
  BestWatch watch(options.best);
  LS_RETURN_IF_ERROR(watch.Read({.metrics = options.out + "/metrics.jsonl", .steps = steps}));
  return watch.ends_run();
}

// Whether starting the ranks again may help.
bool IsWorthARestart(const GroupEnd& end) {
  if (!end.reason.empty() || !end.ranks.empty() || end.signal != 0) return true;
  if (end.exit_code == 1) return end.only_lost;
  return end.exit_code == kRankLostExitCode || end.exit_code >= 128;
}

// Those that whoever started the launcher has it ignore stay ignored.
sigset_t WatchedSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (const int number : kStopSignals) {
    if (!IsIgnored(number)) sigaddset(&set, number);
  }
  return set;
}

class Agent {
 public:
  explicit Agent(const AgentOptions& options) : options_(options) {}

  absl::StatusOr<int> Run() {
    LS_ASSIGN_OR_RETURN(const bool was_complete, IsComplete(options_));
    if (was_complete) {
      std::fprintf(stderr, "%s: the run is complete\n", options_.out.c_str());
      return Finish(0);
    }
    LS_ASSIGN_OR_RETURN(const GroupFolder folder, GroupFolder::Make(options_.out));
    if (PathExists(absl::StrCat(options_.out, "/", kRestartsFile))) {
      Ended("the launcher was started again");
    }
    LS_ASSIGN_OR_RETURN(const std::optional<int64_t> saved, NewestStep(options_.out));
    RestartLimit limit(options_.max_restarts, saved);
    while (true) {
      LS_ASSIGN_OR_RETURN(const std::optional<Placement> placement, AwaitPlacement());
      if (!placement || !AwaitLock()) return Finish(128 + stop_signal_);
      LS_ASSIGN_OR_RETURN(const GroupEnd end, RunGroup(*placement, folder));
      LS_RETURN_IF_ERROR(Settle());
      const bool is_whole = end.ranks.empty() && end.signal == 0;
      // Ranks that were asked to stop for a larger mesh may have ended otherwise meanwhile.
      const std::string growth = std::exchange(grows_to_, "");
      if (!growth.empty() && is_whole && end.exit_code == kStoppedExitCode && stop_signal_ == 0) {
        Ended(growth);
        continue;
      }
      if (is_whole && (end.exit_code == 0 || end.exit_code == kStoppedExitCode)) {
        return Finish(end.exit_code);
      }
      // A launcher may fail, or be ended, when its ranks have done all that there was to do.
      LS_ASSIGN_OR_RETURN(const bool is_complete, IsComplete(options_));
      if (is_complete) return Finish(0);
      if (!IsWorthARestart(end)) return Finish(end.exit_code);
      if (stop_signal_ != 0) return Finish(128 + stop_signal_);
      if (options_.max_restarts == 0 && end.has_told) return Finish(kRankLostExitCode);
      LS_RETURN_IF_ERROR(CheckIsThere(end.Describe()));
      LS_ASSIGN_OR_RETURN(const std::optional<int64_t> newest, NewestStep(options_.out));
      if (limit.IsPassed(newest) || options_.max_restarts == 0) {
        Finish(0);
        return absl::UnavailableError(absl::StrCat(
            "the ranks have ended ", std::max<int64_t>(1, limit.in_vain()),
            " times without a new checkpoint, the last time by ", end.Describe(),
            "; their messages stand above. Look at ", options_.out,
            "/error.txt, save checkpoints more often (checkpoint.every), or raise --max_restarts"));
      }
      Ended(end.Cause());
      seen_cause_ = end.Describe();
    }
  }

 private:
  // The ranks have ended; Record writes it down when they are started again.
  void Ended(const std::string& cause) {
    restart_ = RestartNow(cause);
    seen_cause_ = cause;
    ended_nanos_ = NowNanos();
  }

  // Whether ranks may be started again. Where they have used the run directory, and somebody has
  // removed it, they would begin anew, in a new directory. `cause`: why the last ones ended.
  absl::Status CheckIsThere(const std::string& cause) const {
    if (!has_begun_ || !IsGone(absl::StrCat(options_.out, "/", kRunLockFile))) {
      return absl::OkStatus();
    }
    const absl::Status removed = DirectoryWasRemoved(options_.out);
    return {removed.code(), absl::StrCat(removed.message(), "; the ranks, which have ended (",
                                         cause, "), are not started again")};
  }

  // Writes down the restart, or what has become known of it since.
  absl::Status Record() {
    if (!restart_ || restart_ == recorded_) return absl::OkStatus();
    if (!PathExists(absl::StrCat(options_.out, "/", kRestartsFile))) return absl::OkStatus();
    LS_RETURN_IF_ERROR(recorded_ ? ReplaceRestart(options_.out, *recorded_, *restart_)
                                 : AppendRestart(options_.out, *restart_));
    recorded_ = restart_;
    return absl::OkStatus();
  }

  // Nothing more becomes known of the restart.
  absl::Status Settle() {
    LS_RETURN_IF_ERROR(Record());
    restart_.reset();
    recorded_.reset();
    return absl::OkStatus();
  }

  int Finish(int exit_code) {
    const auto restarts = ReadRestarts(options_.out);
    if (restarts.ok() && !restarts->empty()) {
      std::fputs(RestartsTable(*restarts).c_str(), stderr);
    }
    return exit_code;
  }

  // Asks which hosts are at hand, and waits for the answer; nullopt: a signal has come.
  absl::StatusOr<std::optional<Slots>> AwaitSlots() {
    if (options_.discovery_script.empty()) return Slots{.ranks = options_.most_ranks};
    Discovery discovery(options_.discovery_script, options_.longest_discovery_seconds);
    while (true) {
      if (const auto slots = discovery.Poll()) {
        LS_RETURN_IF_ERROR(slots->status());
        has_discovered_ = true;
        return **slots;
      }
      if (TakeSignal()) return std::nullopt;
    }
  }

  // Waits until there are ranks for a mesh; nullopt: a signal has come. A discovery script that has
  // worked before may work again, as may hosts come back; one that never has is a mistake.
  absl::StatusOr<std::optional<Placement>> AwaitPlacement() {
    const int64_t start = NowNanos();
    std::string told;
    while (true) {
      const absl::StatusOr<std::optional<Slots>> slots = AwaitSlots();
      if (!slots.ok() && !has_discovered_) return slots.status();
      std::string lack(slots.status().message());
      if (slots.ok()) {
        if (!*slots) return std::nullopt;
        const int ranks = (*slots)->ranks;
        Placement placement;
        if (ranks >= options_.min_ranks) {
          LS_ASSIGN_OR_RETURN(placement, options_.place(ranks));
        }
        if (placement.ranks >= options_.min_ranks) {
          hosts_ = (*slots)->hosts;
          return placement;
        }
        lack = absl::StrCat("no mesh of ", options_.min_ranks, " ranks or more fits the ", ranks,
                            " at hand");
      }
      if (SecondsSince(start) > kLongestWaitSeconds) return absl::UnavailableError(lack);
      if (std::exchange(told, lack) != lack) std::fprintf(stderr, "%s; waiting\n", lack.c_str());
      for (int i = 0; i < 50; ++i) {
        if (TakeSignal()) return std::nullopt;
      }
    }
  }

  // Waits for the lock that a rank on a host that has died has left; false: a signal has come. What
  // still has it then is perhaps another run: the ranks, which are refused, name it.
  bool AwaitLock() {
    if (!restart_) return true;
    const std::string path = absl::StrCat(options_.out, "/", kRunLockFile);
    const int64_t start = NowNanos();
    std::string told;
    for (std::string holder = HolderElsewhere(path);
         !holder.empty() && SecondsSince(start) < kLongestLockSeconds;
         holder = HolderElsewhere(path)) {
      if (std::exchange(told, holder) != holder) {
        std::fprintf(
            stderr,
            "%s is locked by %s; if that host has died, its lock soon ends: waiting for up to %s\n",
            path.c_str(), holder.c_str(), FormatDuration(kLongestLockSeconds).c_str());
      }
      for (int i = 0; i < 25; ++i) {
        if (TakeSignal()) return false;
      }
    }
    return true;
  }

  // Decides whether the run is to go on with more ranks than `now` has, given the hosts at hand. A
  // discovery script that fails while ranks are at work is passed over.
  absl::Status LookForMore(const Placement& now, const absl::StatusOr<Slots>& slots) {
    if (!slots.ok()) {
      std::fprintf(stderr, "%s\n", std::string(slots.status().message()).c_str());
      return absl::OkStatus();
    }
    if (slots->ranks <= now.ranks) return absl::OkStatus();
    LS_ASSIGN_OR_RETURN(const Placement larger, options_.place(slots->ranks));
    if (larger.ranks <= now.ranks) return absl::OkStatus();
    grows_to_ = absl::StrCat("hosts with ", slots->ranks, " slots are at hand");
    std::fprintf(stderr, "%s: stopping the ranks to go on with %s\n", grows_to_.c_str(),
                 larger.formation.c_str());
    return absl::OkStatus();
  }

  // Waits for a moment. Whether the run is to be stopped for the first or for another time.
  bool TakeSignal() {
    const sigset_t watched = WatchedSignals();
    const timespec moment = {.tv_sec = 0, .tv_nsec = kPollNanos};
    const int number = sigtimedwait(&watched, nullptr, &moment);
    if (number <= 0 || number == SIGCHLD) return false;
    if (stop_signal_ != 0 && SecondsSince(stopped_nanos_) < kOneWishSeconds) return false;
    stop_signal_ = number;
    stopped_nanos_ = NowNanos();
    return true;
  }

  // Watches a file of the run directory.
  FileWatch Watch(const char* file) const {
    return FileWatch(absl::StrCat(options_.out, "/", file));
  }

  absl::StatusOr<GroupEnd> RunGroup(const Placement& placement, const GroupFolder& folder) {
    std::vector<std::string> program = placement.program;
    if (restart_) LS_RETURN_IF_ERROR(CheckIsThere(seen_cause_));
    LS_ASSIGN_OR_RETURN(const std::optional<SavedState> newest, Newest(options_.out));
    int64_t steps = newest ? newest->steps : 0;
    if (newest) program.push_back("--resume");
    if (restart_) {
      restart_->steps = steps;
      if (newest) restart_->state = newest->is_in_memory ? "memory" : "disk";
      restart_->formation = placement.formation;
      Restart shown = *restart_;
      shown.cause = seen_cause_;
      std::fprintf(stderr, "%s\n", shown.Describe().c_str());
      // Ranks that go on from the last step write their summary, which has all restarts, at once.
      LS_RETURN_IF_ERROR(Record());
    }
    const std::vector<std::string> launcher = absl::StrSplit(
        absl::StrReplaceAll(options_.launcher,
                            {{"{ranks}", absl::StrCat(placement.ranks)}, {"{hosts}", hosts_}}),
        ' ', absl::SkipEmpty());
    // What these ranks write, among what earlier ones have left.
    const FileWatch lock = Watch(kRunLockFile), error = Watch(kErrorFile),
                    resumed = Watch(kResumedFile), losses = Watch("losses.csv");
    LS_ASSIGN_OR_RETURN(WorkerGroup group,
                        WorkerGroup::Start(launcher, options_.worker, folder, program));
    bool is_marked = false;
    int stops = 0;                 // signals of the user
    bool ranks_were_told = false;  // to stop
    const bool lacks_ranks =
        placement.ranks < options_.most_ranks && !options_.discovery_script.empty();
    int64_t looked_at = StepsOnDisk(options_.out);
    std::optional<Discovery> discovery;  // while the script runs
    const int64_t start_nanos = NowNanos();
    bool has_begun = false, is_in_use = false;
    std::optional<int64_t> told_nanos;
    // Either file tells it. Where a file system counts seconds, a run.lock that is written twice in
    // one of them looks the same.
    const auto are_at_work = [&] { return lock.HasChanged() || losses.HasChanged(); };
    // Ranks themselves choose what they go on from: they pass over what is damaged.
    const auto correct_restart = [&] {
      if (!restart_ || !resumed.HasChanged()) return;
      const absl::StatusOr<ResumedFrom> from = ReadResumed(options_.out);
      if (!from.ok()) return;
      steps = restart_->steps = from->steps;
      restart_->state = from->state;
    };
    // What ranks have told is read now: the next ones remove the file when they begin.
    const auto with_word = [&](GroupEnd end) {
      if (!error.HasChanged()) return end;
      end.told = CauseOf(ReadFile(error.path()).value_or(""));
      return end;
    };
    const auto end_now = [&](std::string reason) {
      correct_restart();
      discovery.reset();  // `group` waits for all children
      return with_word(group.EndNow(std::move(reason)));
    };
    do {
      if (!told_nanos && (group.HasLostRank() || error.HasChanged())) told_nanos = NowNanos();
      if (told_nanos && SecondsSince(*told_nanos) > kLongestFarewellSeconds) {
        return end_now(
            "a rank has ended before its time, but the launcher has not: a host that does not "
            "answer");
      }
      is_in_use = is_in_use || are_at_work();  // the directory may be removed under them
      has_begun_ = has_begun_ || is_in_use;
      has_begun = has_begun || told_nanos || is_in_use;
      if (!has_begun && SecondsSince(start_nanos) > options_.longest_start_seconds) {
        return end_now(absl::StrCat("the launcher has brought no ranks together within ",
                                    FormatDuration(options_.longest_start_seconds),
                                    " (--longest_start)"));
      }
      // Hosts that have come back are taken in where a checkpoint has been saved.
      if (lacks_ranks && stops == 0 && grows_to_.empty()) {
        const int64_t saved = StepsOnDisk(options_.out);
        if (std::exchange(looked_at, saved) < saved && saved < options_.steps && !discovery) {
          discovery.emplace(options_.discovery_script, options_.longest_discovery_seconds);
        }
        if (const auto slots = discovery ? discovery->Poll() : std::nullopt) {
          discovery.reset();
          LS_RETURN_IF_ERROR(LookForMore(placement, *slots));
          if (!grows_to_.empty()) {
            group.Signal(SIGUSR1);
            ranks_were_told = true;
          }
        }
      }
      if (TakeSignal()) {
        // A launcher that has not started all ranks yet has nobody to pass SIGUSR1 on to. All ranks
        // hear signals by the time that rank 0 writes run.lock, and none has trained before.
        if (!is_in_use && !are_at_work()) {
          std::fprintf(stderr, "SIG%s: ending the ranks, which have not begun\n",
                       sigabbrev_np(stop_signal_));
          return GroupEnd{.signal = SIGKILL};  // `group` goes, and all of it
        }
        stops += 1;
        const char* what = stops > 1         ? "ending the ranks at once"
                           : ranks_were_told ? "the ranks, which are stopping, do not go on"
                                             : "telling the ranks to stop";
        std::fprintf(stderr, "SIG%s: %s\n", sigabbrev_np(stop_signal_), what);
        if (stops > 1) return GroupEnd{.signal = SIGKILL};  // `group` goes, and all of it
        // A second SIGUSR1 would end the ranks at once, without a checkpoint.
        if (!std::exchange(ranks_were_told, true)) group.Signal(SIGUSR1);
      }
      if (is_marked && !restart_) continue;
      if (!losses.HasChanged()) continue;
      if (!is_marked) LS_RETURN_IF_ERROR(BeginRestarts(options_.out, placement.formation));
      is_marked = true;
      correct_restart();  // written before losses.csv
      const bool goes_on = restart_ && LastStep(losses.path()) >= steps;
      if (goes_on) restart_->seconds = SecondsSince(ended_nanos_);
      LS_RETURN_IF_ERROR(goes_on ? Settle() : Record());
    } while (group.IsRunning());
    correct_restart();
    discovery.reset();
    return with_word(group.End());
  }

  const AgentOptions& options_;
  std::string hosts_;
  std::string grows_to_;             // why ranks were asked to stop for a larger mesh; empty: no
  std::optional<Restart> restart_;   // of which more may become known; nullopt: none
  std::optional<Restart> recorded_;  // restart_ as restarts.jsonl has it; nullopt: it has not
  std::string seen_cause_;           // of restart_, without what ranks have told the user
  int64_t ended_nanos_ = 0;          // when the ranks ended last
  bool has_begun_ = false;           // ranks have written to the run directory
  bool has_discovered_ = false;      // the discovery script has worked
  int stop_signal_ = 0;              // 0: none has come
  int64_t stopped_nanos_ = 0;        // when it came
};

}  // namespace

absl::StatusOr<int> RunAgent(const AgentOptions& options) {
  sigset_t before;
  const sigset_t watched = WatchedSignals();
  sigprocmask(SIG_BLOCK, &watched, &before);
  absl::StatusOr<int> code = Agent(options).Run();
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return code;
}

}  // namespace lockstep
