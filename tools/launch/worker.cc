// One worker of a launcher (worker_group.h), as mpirun or srun starts it:
//
//   worker FOLDER PROGRAM ARGUMENT...
//
// Runs the program, which ends when this process ends, and this one when its parent does: so no
// rank outlives the launcher, however that ends. Makes the folder, for MPI's files on this host
// (host_folder.h), and leaves "ended-<rank>" in it where a signal has ended the program,
// "failed-<rank>" where the program has ended with an error, which it has told, and
// "stopped-<rank>" where the launcher has told it to end. Passes on the signals that stop a run,
// and ends as the program has ended.

#include <signal.h>
#include <string.h>  // strsignal
#include <sys/prctl.h>
#include <sys/resource.h>  // setrlimit
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "core/base/file.h"
#include "core/run/stop/run_signals.h"
#include "tools/launch/host_folder.h"

namespace lockstep {
namespace {

constexpr int kCannotRun = 127;  // as shells say it

// As the launcher says.
const char* Rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const char* rank = std::getenv(name); rank != nullptr) return rank;
  }
  return "?";
}

// Ends this process by a signal, so that whoever has started it sees it.
[[noreturn]] void EndBy(int number) {
  const rlimit no_core = {.rlim_cur = 0, .rlim_max = 0};
  setrlimit(RLIMIT_CORE, &no_core);  // the program has left its own
  signal(number, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, number);
  sigprocmask(SIG_UNBLOCK, &only, nullptr);
  raise(number);
  _exit(128 + number);
}

int Run(const std::string& folder, char** arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  absl::StatusOr<HostFolder> host = HostFolder::Enter(folder);
  if (!host.ok()) {
    std::fprintf(stderr, "%s\n", std::string(host.status().message()).c_str());
    return kCannotRun;
  }
  sigset_t watched, before;
  sigemptyset(&watched);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1}) sigaddset(&watched, number);
  sigprocmask(SIG_BLOCK, &watched, &before);
  const pid_t self = getpid();
  const pid_t program = fork();
  if (program < 0) {
    std::perror("fork");
    return kCannotRun;
  }
  if (program == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != self) _exit(kCannotRun);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    execv(arguments[0], arguments);
    std::perror(arguments[0]);
    _exit(kCannotRun);
  }
  bool was_told_to_end = false;
  int status = 0;
  while (waitpid(program, &status, WNOHANG) == 0) {
    const int number = sigwaitinfo(&watched, nullptr);
    if (number <= 0 || number == SIGCHLD) continue;
    if (number != SIGUSR1) {
      was_told_to_end = true;
      WriteFileAtomically(folder + "/stopped-" + Rank(), std::to_string(number)).IgnoreError();
    }
    kill(program, number);
  }
  if (WIFEXITED(status)) {
    const int code = WEXITSTATUS(status);
    if (code != 0 && code != kCannotRun && code != kStoppedExitCode) {
      WriteFileAtomically(folder + "/failed-" + Rank(), std::to_string(code)).IgnoreError();
    }
    host->Leave();
    return code;
  }
  const int number = WTERMSIG(status);
  // What a launcher ends because another rank has died is no cause. But its SIGKILL ends this
  // process too: that of a program alone is somebody else's, even if the launcher's SIGTERM was
  // faster.
  if (!was_told_to_end || number == SIGKILL) {
    WriteFileAtomically(folder + "/ended-" + Rank(), std::to_string(number)).IgnoreError();
  }
  host->Leave();
  EndBy(number);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("usage: worker FOLDER PROGRAM ARGUMENT... (//tools/launch starts it)\n", stderr);
    return 1;
  }
  return lockstep::Run(argv[1], argv + 2);
}
