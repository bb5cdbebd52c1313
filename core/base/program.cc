#include "core/base/program.h"

#include <signal.h>
#include <sys/resource.h>  // getrlimit

#include <cerrno>
#include <cstdio>
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

// "; the process may use 70.0 MiB (ulimit -v)", if there is a limit.
std::string LimitText() {
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return absl::StrCat("; the process may have ", FormatBytes(static_cast<int64_t>(limit.rlim_cur)),
                      " of addresses (ulimit -v)");
}

absl::Status OutOfMemory() {
  return absl::ResourceExhaustedError(absl::StrCat(
      "out of memory: the system gives this process no more memory or threads", LimitText(),
      ". Lower batch.size, the sizes of [model], run.threads or the number of ranks"));
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
