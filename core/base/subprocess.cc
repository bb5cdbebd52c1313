#include "core/base/subprocess.h"

#include <fcntl.h>         // O_CLOEXEC, O_RDONLY
#include <poll.h>          // poll
#include <spawn.h>         // posix_spawn
#include <string.h>        // strsignal
#include <sys/signalfd.h>  // signalfd
#include <sys/syscall.h>   // SYS_pidfd_open
#include <sys/wait.h>      // waitpid
#include <unistd.h>        // environ, pipe2, read, syscall

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// What a person, or a service manager, stops a program with.
sigset_t StoppingSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

// Our environment with `changes` laid over it, as NAME=value.
std::vector<std::string> Environment(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!changes.contains(text.substr(0, text.find('=')))) environment.push_back(text);
  }
  for (const auto& [name, value] : changes) {
    environment.push_back(absl::StrCat(name, "=", value));
  }
  return environment;
}

// The form that exec wants. Points into `texts`.
std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

void Close(int descriptor) {
  if (descriptor >= 0) close(descriptor);
}

struct Pipe {
  int read = -1;
  int write = -1;
};

absl::StatusOr<Pipe> MakePipe(ProcessOptions::Stream stream) {
  int ends[2] = {-1, -1};
  if (stream == ProcessOptions::Stream::kCapture && pipe2(ends, O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, "cannot make a pipe");
  }
  return Pipe{.read = ends[0], .write = ends[1]};
}

// Moves what a descriptor holds to `text`; at its end closes it and makes it -1.
void ReadSome(int& descriptor, std::string& text) {
  char buffer[1 << 16];
  const ssize_t count = read(descriptor, buffer, sizeof(buffer));
  if (count > 0) {
    text.append(buffer, static_cast<size_t>(count));
  } else if (count == 0 || errno != EINTR) {
    Close(std::exchange(descriptor, -1));
  }
}

void Reap(pid_t pid, int* status) {
  while (waitpid(pid, status, 0) < 0) PCHECK(errno == EINTR) << "waitpid";
}

}  // namespace

std::string ProcessResult::Describe() const {
  if (signal == 0) return absl::StrCat("exit code ", exit_code);
  return absl::StrCat("killed by signal ", signal, " (", strsignal(signal), ")");
}

absl::StatusOr<Subprocess> Subprocess::Start(const ProcessOptions& options) {
  LS_ASSIGN_OR_RETURN(const Pipe out, MakePipe(options.out));
  LS_ASSIGN_OR_RETURN(const Pipe err, MakePipe(options.err));
  sigset_t old_mask;
  const sigset_t stopping = StoppingSignals();
  pthread_sigmask(SIG_BLOCK, &stopping, &old_mask);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (out.write >= 0) posix_spawn_file_actions_adddup2(&files, out.write, STDOUT_FILENO);
  if (err.write >= 0) posix_spawn_file_actions_adddup2(&files, err.write, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // A caller that holds these signals back until it has tidied up still hands them on.
  sigset_t mask = old_mask;
  sigdelset(&mask, SIGINT);
  sigdelset(&mask, SIGTERM);
  posix_spawnattr_setsigmask(&attributes, &mask);
  // A background job of a shell ignores SIGINT, and so would all that it starts.
  posix_spawnattr_setsigdefault(&attributes, &stopping);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

  std::vector<std::string> arguments = options.arguments;
  std::vector<std::string> environment = Environment(options.environment);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, arguments.at(0).c_str(), &files, &attributes,
                                Pointers(arguments).data(), Pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  Close(out.write);
  Close(err.write);
  if (error != 0) {
    Close(out.read);
    Close(err.read);
    pthread_sigmask(SIG_SETMASK, &old_mask, nullptr);
    return absl::ErrnoToStatus(error, absl::StrCat("cannot start \"", arguments[0], "\""));
  }
  return Subprocess(pid, out.read, err.read, old_mask);
}

Subprocess::Subprocess(Subprocess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      out_(std::exchange(other.out_, -1)),
      err_(std::exchange(other.err_, -1)),
      old_mask_(other.old_mask_) {}

Subprocess::~Subprocess() {
  if (pid_ < 0) return;
  Signal(SIGKILL);
  Wait();
}

bool Subprocess::HasEnded() const {
  siginfo_t info = {};
  const int error =
      waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);  // not reaped
  return error == 0 && info.si_pid != 0;
}

void Subprocess::Signal(int number) const { kill(pid_, number); }

ProcessResult Subprocess::Wait() {
  ProcessResult result;
  const sigset_t stopping = StoppingSignals();
  int signals = signalfd(-1, &stopping, SFD_CLOEXEC);
  // Readable when the program has ended. (glibc 2.36 declares pidfd_open for C only.)
  int ended = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  PCHECK(signals >= 0 && ended >= 0) << "waiting for a program";
  // Output can outlast the program, where something that it started still writes.
  while (ended >= 0 || out_ >= 0 || err_ >= 0) {
    pollfd watched[] = {
        {out_, POLLIN, 0}, {err_, POLLIN, 0}, {signals, POLLIN, 0}, {ended, POLLIN, 0}};
    if (poll(watched, 4, -1) < 0) {
      PCHECK(errno == EINTR) << "poll";
      continue;
    }
    if (watched[0].revents != 0) ReadSome(out_, result.out);
    if (watched[1].revents != 0) ReadSome(err_, result.err);
    if (watched[2].revents != 0) {
      signalfd_siginfo info;
      if (read(signals, &info, sizeof(info)) == sizeof(info)) {
        result.interrupted = true;
        if (ended >= 0) Signal(static_cast<int>(info.ssi_signo));
      }
    }
    if (watched[3].revents != 0) Close(std::exchange(ended, -1));
  }
  Close(signals);
  int status = 0;
  Reap(std::exchange(pid_, -1), &status);
  pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
  if (WIFSIGNALED(status)) {
    result.signal = WTERMSIG(status);
  } else {
    result.exit_code = WEXITSTATUS(status);
  }
  return result;
}

absl::StatusOr<ProcessResult> RunProcess(const ProcessOptions& options) {
  LS_ASSIGN_OR_RETURN(Subprocess process, Subprocess::Start(options));
  return process.Wait();
}

}  // namespace lockstep
