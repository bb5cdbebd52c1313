#include "tools/launch/child_process.h"

#include <fcntl.h>  // O_CLOEXEC
#include <signal.h>
#include <sys/prctl.h>  // PR_SET_PDEATHSIG
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/status/status.h"

namespace lockstep {
namespace {

constexpr int kCannotRun = 127;  // as shells say it

}  // namespace

absl::StatusOr<ChildProcess> StartChild(const std::string& path, std::vector<std::string> words,
                                        int stream) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  FileDescriptor ours(ends[0]);
  const FileDescriptor theirs(ends[1]);
  fcntl(ours.get(), F_SETFL, O_NONBLOCK);
  const pid_t self = getpid();
  const pid_t child = fork();
  if (child < 0) return absl::ErrnoToStatus(errno, "fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != self) _exit(kCannotRun);
    setpgid(0, 0);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(theirs.get(), stream);
    execv(path.c_str(), arguments.data());
    std::perror(path.c_str());
    _exit(kCannotRun);
  }
  setpgid(child, child);  // whoever comes first: the child may not have run yet when it is ended
  return ChildProcess{.pid = child, .written = std::move(ours)};
}

}  // namespace lockstep
