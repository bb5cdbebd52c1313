#include "tools/launch/worker_group.h"

#include <fcntl.h>  // O_CREAT
#include <signal.h>
#include <string.h>    // strsignal
#include <sys/file.h>  // flock
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/checksum.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/run/stop/exit_codes.h"
#include "tools/experiment/paths.h"
#include "tools/launch/child_process.h"
#include "tools/launch/host_folder.h"

namespace lockstep {
namespace {

constexpr double kSecondsToEnd = 3;  // for what a launcher leaves
// As :worker writes them.
constexpr char kEnded[] = "ended-", kFailed[] = "failed-", kStopped[] = "stopped-";

std::string SignalText(int number) {
  return absl::StrCat("killed by signal ", number, " (", strsignal(number), ")");
}

// Where files are memory, if there is such a place: segments that ranks share lie there.
std::string MemoryFolder() {
  if (access("/dev/shm", W_OK | X_OK) == 0) return "/dev/shm";
  const char* folder = std::getenv("TMPDIR");
  return folder != nullptr && folder[0] != '\0' ? folder : "/tmp";
}

// The processes whose parent is this one.
std::vector<pid_t> Children() {
  std::vector<pid_t> children;
  const std::string path = absl::StrCat("/proc/self/task/", getpid(), "/children");
  for (const auto word : absl::StrSplit(ReadFile(path).value_or(""), ' ', absl::SkipEmpty())) {
    int child = 0;
    if (absl::SimpleAtoi(word, &child)) children.push_back(child);
  }
  return children;
}

}  // namespace

std::string GroupEnd::Cause() const {
  // Ranks that are left tell what followed from a signal, at most.
  return !told.empty() && ranks.empty() && signal == 0 ? told : Describe();
}

std::string GroupEnd::Describe() const {
  if (!reason.empty()) return reason;
  if (!ranks.empty()) {
    return absl::StrJoin(ranks, ", ", [](std::string* text, const auto& rank) {
      absl::StrAppend(text, "rank ", rank.first, ": ", SignalText(rank.second));
    });
  }
  if (signal != 0) return absl::StrCat("the launcher: ", SignalText(signal));
  return absl::StrCat("exit code ", exit_code);
}

std::string GroupFolder::PathOf(const std::string& run_directory) {
  return absl::StrFormat("%s/lockstep-%d-%016x", MemoryFolder(), getuid(),
                         ChecksumOf(std::string_view(run_directory)));
}

absl::StatusOr<GroupFolder> GroupFolder::Make(const std::string& run_directory) {
  const std::string path = PathOf(run_directory);
  struct stat found;
  if (mkdir(path.c_str(), 0700) != 0 && (errno != EEXIST || lstat(path.c_str(), &found) != 0 ||
                                         !S_ISDIR(found.st_mode) || found.st_uid != getuid())) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot make the folder \"", path, "\" for what ranks share; remove it"));
  }
  LS_ASSIGN_OR_RETURN(FileDescriptor lock,
                      OpenRegularFile(absl::StrCat(path, "/", kLauncherLock), O_RDWR | O_CREAT));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(run_directory,
                     ": another launcher runs this run on this host; wait for its end, or use "
                     "another --out"));
  }
  GroupFolder folder(path, std::move(lock));
  LS_RETURN_IF_ERROR(folder.Clear());
  return folder;
}

GroupFolder::~GroupFolder() {
  if (lock_.is_open()) RemoveTree(path_);
}

absl::Status GroupFolder::Clear() const {
  LS_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(path_));
  for (const std::string& name : names) {
    if (name != kLauncherLock) RemoveTree(absl::StrCat(path_, "/", name));
  }
  return absl::OkStatus();
}

absl::StatusOr<WorkerGroup> WorkerGroup::Start(const std::vector<std::string>& launcher,
                                               const std::string& worker, const GroupFolder& folder,
                                               const std::vector<std::string>& program) {
  const std::string path = FindOnPath(launcher.at(0));
  if (path.empty()) {
    return absl::NotFoundError(absl::StrCat("there is no program \"", launcher[0],
                                            "\" on PATH; install it, or say how ranks are started "
                                            "by --launcher"));
  }
  LS_RETURN_IF_ERROR(folder.Clear());
  std::vector<std::string> words = launcher;
  words.insert(words.end(), {worker, folder.path()});
  words.insert(words.end(), program.begin(), program.end());
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return absl::ErrnoToStatus(errno, "prctl");
  // Open MPI's own files, which a kill leaves behind. Its settings reach ranks on other hosts too.
  setenv("OMPI_MCA_orte_tmpdir_base", folder.path().c_str(), 1);
  setenv("OMPI_MCA_btl_vader_backing_directory", folder.path().c_str(), 1);
  LS_ASSIGN_OR_RETURN(ChildProcess child, StartChild(path, std::move(words), STDERR_FILENO));
  return WorkerGroup(child.pid, folder.path(), std::move(child.written));
}

WorkerGroup::WorkerGroup(WorkerGroup&& other) noexcept
    : launcher_(std::exchange(other.launcher_, -1)),
      folder_(std::move(other.folder_)),
      errors_(std::move(other.errors_)),
      output_(std::move(other.output_)),
      status_(other.status_) {}

WorkerGroup::~WorkerGroup() {
  if (launcher_ < 0) return;
  kill(launcher_, SIGKILL);
  EndChildren();
}

void WorkerGroup::Signal(int number) const {
  if (launcher_ > 0) kill(launcher_, number);
}

void WorkerGroup::PassOn() {
  std::array<char, 4096> bytes;
  while (true) {
    const ssize_t size = read(errors_.get(), bytes.data(), bytes.size());
    if (size <= 0) return;
    const std::string shown = output_.Take({bytes.data(), static_cast<size_t>(size)});
    std::fwrite(shown.data(), 1, shown.size(), stderr);
  }
}

std::map<std::string, int> WorkerGroup::NumbersIn(const std::string& prefix) const {
  std::map<std::string, int> numbers;
  for (const std::string& name : ListFolder(folder_).value_or(std::vector<std::string>())) {
    int number = 0;
    if (absl::StartsWith(name, prefix) && name.find(".tmp") == std::string::npos &&
        absl::SimpleAtoi(ReadFile(absl::StrCat(folder_, "/", name)).value_or(""), &number)) {
      numbers[name.substr(prefix.size())] = number;
    }
  }
  return numbers;
}

bool WorkerGroup::HasLostRank() const {
  return !NumbersIn(kFailed).empty() || !NumbersIn(kEnded).empty();
}

bool WorkerGroup::IsRunning() {
  PassOn();
  if (launcher_ < 0) return false;
  if (waitpid(launcher_, &status_, WNOHANG) == 0) return true;
  launcher_ = -1;
  return false;
}

GroupEnd WorkerGroup::EndNow(std::string reason) {
  if (launcher_ > 0) kill(launcher_, SIGKILL);
  launcher_ = -1;
  status_ = 0;
  GroupEnd end = End();
  end.reason = std::move(reason);
  end.exit_code = kRankLostExitCode;
  return end;
}

void WorkerGroup::EndChildren() {
  const int64_t start = NowNanos();
  while (true) {
    PassOn();  // so that none waits for room in the pipe
    const bool is_over = SecondsSince(start) > kSecondsToEnd;
    if (is_over) {
      for (const pid_t child : Children()) kill(child, SIGKILL);
    }
    const pid_t ended = waitpid(-1, nullptr, is_over ? 0 : WNOHANG);
    if (ended < 0 && errno == ECHILD) break;
    if (ended == 0) usleep(1000);
  }
  PassOn();
}

GroupEnd WorkerGroup::End() {
  EndChildren();
  const std::map<std::string, int> told = NumbersIn(kFailed);
  GroupEnd end = {.ranks = NumbersIn(kEnded),
                  .has_told = !told.empty(),
                  .only_lost = !(told.empty() && NumbersIn(kStopped).empty()) &&
                               std::all_of(told.begin(), told.end(), [](const auto& rank) {
                                 return rank.second == kRankLostExitCode;
                               })};
  if (WIFSIGNALED(status_)) {
    end.signal = WTERMSIG(status_);
  } else {
    end.exit_code = WEXITSTATUS(status_);
  }
  if (!end.has_told && end.ranks.empty()) {
    const std::string own = output_.TakeOwn();
    std::fwrite(own.data(), 1, own.size(), stderr);
  }
  return end;
}

}  // namespace lockstep
