#include "core/base/program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>  // getrlimit
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>  // std::abort, std::strtoll
#include <exception>
#include <new>
#include <stdexcept>  // std::length_error
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

// What the kernel counts of this process, in bytes: addresses and memory; 0 if it does not say.
// Without std::ifstream, whose buffers would take memory.
struct ProcessBytes {
  int64_t addresses = 0, memory = 0;
};
ProcessBytes BytesOfProcess() {
  char text[128];
  const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  const ssize_t size = read(file, text, sizeof(text) - 1);
  close(file);
  if (size <= 0) return {};
  text[size] = '\0';
  char* rest;
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t addresses = std::strtoll(text, &rest, 10) * page;
  return {addresses, std::strtoll(rest, nullptr, 10) * page};
}

// "; it has 69.1 MiB of addresses and may have 70.0 MiB (ulimit -v)", if there is a limit, else ";
// it has 20.1 GiB of memory".
std::string UseText() {
  const ProcessBytes bytes = BytesOfProcess();
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return absl::StrCat("; it has ", FormatBytes(bytes.memory), " of memory");
  }
  return absl::StrCat("; it has ", FormatBytes(bytes.addresses), " of addresses and may have ",
                      FormatBytes(static_cast<int64_t>(limit.rlim_cur)), " (ulimit -v)");
}

absl::Status OutOfMemory() {
  return absl::ResourceExhaustedError(absl::StrCat(
      "out of memory: the system gives this process no more memory or threads", UseText(),
      ". Lower batch.size, the sizes of [model], run.threads or the number of ranks"));
}

// Memory may run out where nothing may be thrown, such as in a destructor of a library that needs
// some. Then there is no way to the caller: one message, and the exit code of any other error.
[[noreturn]] void EndWithoutCaller() {
  if (std::current_exception() != nullptr) {
    try {
      throw;
    } catch (const std::bad_alloc&) {
      constexpr char kMessage[] =
          "out of memory: the system gives this process no more memory. Lower batch.size, the "
          "sizes "
          "of [model], run.threads or the number of ranks\n";
      static_cast<void>(!write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1));
      _exit(1);
    } catch (...) {  // a broken promise: its place is in the dump
    }
  }
  std::abort();
}

absl::Status FlushOutput() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "cannot write to the standard output");
}

}  // namespace

absl::Status StatusOfException() {
  try {
    throw;
  } catch (const StatusException& error) {
    return error.status();
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  } catch (const std::length_error&) {
    return OutOfMemory();
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again) return OutOfMemory();
    return absl::InternalError(absl::StrCat("uncaught exception: ", error.what()));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("uncaught exception: ", error.what()));
  }
}

int ExitCodeOf(const std::function<absl::StatusOr<int>()>& run) {
  signal(SIGXFSZ, SIG_IGN);
  std::set_terminate(EndWithoutCaller);
  absl::StatusOr<int> exit_code = 1;
  try {
    exit_code = run();
  } catch (const std::exception&) {
    exit_code = StatusOfException();
  }
  absl::Status status = exit_code.status();
  status.Update(FlushOutput());
  if (status.ok()) return *exit_code;
  PrintError(status);
  return 1;
}

}  // namespace lockstep
