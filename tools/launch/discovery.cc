#include "tools/launch/discovery.h"

#include <signal.h>
#include <string.h>  // strsignal
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "tools/launch/child_process.h"

namespace lockstep {
namespace {

constexpr int kCannotRun = 127;                 // as shells say it
constexpr size_t kMostBytes = size_t{1} << 20;  // of what a script prints

std::string Described(int status) {
  if (!WIFSIGNALED(status)) return absl::StrCat("exit code ", WEXITSTATUS(status));
  const int number = WTERMSIG(status);
  return absl::StrCat("killed by signal ", number, " (", strsignal(number), ")");
}

}  // namespace

absl::StatusOr<Slots> ParseSlots(const std::string& text) {
  Slots slots;
  std::vector<std::string> hosts;
  for (const auto whole : absl::StrSplit(text, '\n')) {
    const auto line = absl::StripAsciiWhitespace(whole);
    if (line.empty()) continue;
    const std::pair<std::string, std::string> pair = absl::StrSplit(line, absl::MaxSplits(':', 1));
    int ranks = 0;
    if (pair.first.empty() || !absl::SimpleAtoi(pair.second, &ranks) || ranks < 0) {
      return InvalidArgument("\"", line, "\" is no host with its number of slots, as in host:4");
    }
    slots.ranks += ranks;
    if (ranks > 0) hosts.push_back(absl::StrCat(pair.first, ":", ranks));
  }
  slots.hosts = absl::StrJoin(hosts, ",");
  return slots;
}

Discovery::Discovery(const std::string& script, double limit_seconds)
    : script_(script), limit_seconds_(limit_seconds), start_nanos_(NowNanos()), started_(Start()) {}

Discovery::~Discovery() { End(); }

absl::Status Discovery::Start() {
  if (access(script_.c_str(), X_OK) != 0) return absl::ErrnoToStatus(errno, "cannot start it");
  LS_ASSIGN_OR_RETURN(ChildProcess child, StartChild(script_, {script_}, STDOUT_FILENO));
  pid_ = child.pid;
  out_ = std::move(child.written);
  return absl::OkStatus();
}

void Discovery::End() {
  if (pid_ < 0) return;
  kill(-pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

void Discovery::Read() {
  std::array<char, 4096> bytes;
  while (text_.size() <= kMostBytes) {
    const ssize_t size = read(out_.get(), bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return;
    text_.append(bytes.data(), static_cast<size_t>(size));
  }
}

std::optional<absl::StatusOr<Slots>> Discovery::Poll() {
  const std::string who = absl::StrCat("--host_discovery_script ", script_);
  if (!started_.ok()) return Annotate(started_, who);
  int status = 0;
  const pid_t ended = waitpid(pid_, &status, WNOHANG);
  // What it has started may hold the pipe open: nobody waits for its end.
  Read();
  if (text_.size() > kMostBytes) {
    End();
    return absl::FailedPreconditionError(
        absl::StrCat(who, ": prints more than ", FormatBytes(static_cast<int64_t>(kMostBytes)),
                     " where lines such as host:4 are wanted, and was killed"));
  }
  if (ended < 0) return absl::ErrnoToStatus(errno, absl::StrCat(who, ": its end"));
  if (ended == 0) {
    if (SecondsSince(start_nanos_) < limit_seconds_) return std::nullopt;
    End();
    return absl::DeadlineExceededError(absl::StrCat(who, ": has not ended within ",
                                                    FormatDuration(limit_seconds_),
                                                    " (--longest_discovery), and was killed"));
  }
  pid_ = -1;
  if (status != 0) return absl::FailedPreconditionError(absl::StrCat(who, ": ", Described(status)));
  absl::StatusOr<Slots> slots = ParseSlots(text_);
  if (!slots.ok()) return Annotate(slots.status(), who);
  return slots;
}

}  // namespace lockstep
