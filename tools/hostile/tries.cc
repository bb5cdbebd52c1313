#include "tools/hostile/tries.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/nearest.h"
#include "core/base/program.h"
#include "core/base/status.h"
#include "tools/hostile/judgement.h"

namespace lockstep {
namespace {

// What a child tells while it works. Shared memory, which outlives a child that is killed.
struct Board {
  std::atomic<int64_t> next;         // index of the try under way
  std::atomic<int64_t> began_nanos;  // when it began
  std::atomic<bool> has_failed;      // it has ended, and `what` says why it is a failure
  char what[2048];
};

absl::Status Attempt(const HostileTarget& target, uint64_t seed, const std::string& folder) {
  HostileRandom random(seed);
  return Catching([&] { return target.attempt(random, folder); });
}

// The child: makes tries from board->next on, until all are done or one has failed.
[[noreturn]] void Work(const std::vector<HostileTry>& tries,
                       const std::map<std::string, HostileTarget>& targets,
                       const HostileOptions& options, Board* board) {
  signal(SIGXFSZ, SIG_IGN);
  const int null = open("/dev/null", O_WRONLY);
  dup2(null, STDOUT_FILENO);
  dup2(null, STDERR_FILENO);
  std::map<std::string, bool> is_prepared;
  for (; board->next < static_cast<int64_t>(tries.size()); ++board->next) {
    const HostileTry& attempt = tries[static_cast<size_t>(board->next)];
    const HostileTarget& target = targets.at(attempt.target);
    const std::string folder = absl::StrCat(options.folder, "/", target.name);
    board->began_nanos = NowNanos();
    std::string problem;
    if (!is_prepared[target.name]) {
      RemoveTree(folder);
      absl::Status prepared = MakeDirectories(folder);
      if (prepared.ok()) prepared = target.prepare(folder);
      if (!prepared.ok()) problem = absl::StrCat("not prepared: ", prepared.message());
      is_prepared[target.name] = true;
    }
    if (problem.empty()) {
      problem = ProblemOfError(Attempt(target, attempt.seed, folder), options.message);
    }
    if (problem.empty()) continue;
    problem.copy(board->what, sizeof(board->what) - 1);
    board->has_failed = true;
    _exit(0);
  }
  _exit(0);
}

// Waits for the child. Returns how it ended if that fails a try; empty: it did not.
std::string Watch(pid_t child, const Board* board, const HostileOptions& options,
                  const std::function<void(size_t)>& progress) {
  bool is_late = false;
  for (;;) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) {
      if (is_late) return absl::StrFormat("no end within %.0f s", options.limit_seconds);
      if (board->has_failed) return board->what;
      if (WIFSIGNALED(status)) {
        return absl::StrCat("signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")");
      }
      if (WEXITSTATUS(status) != 0) return absl::StrCat("exit code ", WEXITSTATUS(status));
      return "";
    }
    if (!is_late && SecondsSince(board->began_nanos) > options.limit_seconds) {
      is_late = true;
      kill(child, SIGKILL);
    }
    progress(static_cast<size_t>(board->next));
    poll(nullptr, 0, 20);
  }
}

}  // namespace

absl::StatusOr<std::vector<HostileTry>> PlanTries(uint64_t seed, int64_t count,
                                                  const std::string& target) {
  std::vector<std::string> names;
  for (const HostileTarget& each : HostileTargets()) names.push_back(each.name);
  if (!target.empty()) {
    LS_RETURN_IF_ERROR(FindName("target", target, names).status());
    names = {target};
  }
  HostileRandom seeds(seed);
  std::vector<HostileTry> tries;
  for (int64_t i = 0; i < count; ++i) {
    tries.push_back({.target = names[static_cast<size_t>(i) % names.size()], .seed = seeds()});
  }
  return tries;
}

absl::StatusOr<std::vector<HostileFailure>> MakeTries(
    const std::vector<HostileTry>& tries, const HostileOptions& options,
    const std::function<void(size_t done)>& progress) {
  LS_RETURN_IF_ERROR(MakeDirectories(options.folder));
  std::map<std::string, HostileTarget> targets;
  for (HostileTarget& target : HostileTargets()) targets[target.name] = std::move(target);
  void* memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return absl::ResourceExhaustedError("no memory for hostile tries");
  auto* board = new (memory) Board();
  std::vector<HostileFailure> failures;
  while (board->next < static_cast<int64_t>(tries.size())) {
    board->has_failed = false;
    std::memset(board->what, 0, sizeof(board->what));
    board->began_nanos = NowNanos();
    const pid_t child = fork();
    if (child < 0) return absl::ResourceExhaustedError("no process for hostile tries");
    if (child == 0) Work(tries, targets, options, board);
    const std::string what = Watch(child, board, options, progress);
    if (what.empty()) break;
    failures.push_back({.attempt = tries[static_cast<size_t>(board->next)], .what = what});
    ++board->next;
  }
  munmap(memory, sizeof(Board));
  return failures;
}

}  // namespace lockstep
