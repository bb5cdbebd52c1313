#include "strategies/testing/failing_files.h"

#include <fcntl.h>
#include <linux/limits.h>  // PATH_MAX
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstring>

namespace lockstep {
namespace {

// The functions below have no other place for what they are told. Plain memory: they are called
// before constructors run, and where there may be no memory.
struct Plan {
  char folder[PATH_MAX];
  size_t folder_bytes;
  FileFault fault;
  int64_t at;
  int64_t* calls;
};
Plan plan;
std::atomic<bool> is_on = false;

// Whether a call on this path is the one that fails; sets errno then.
bool Fails(const char* path) {
  if (!is_on || strncmp(path, plan.folder, plan.folder_bytes) != 0) return false;
  if (__atomic_add_fetch(plan.calls, 1, __ATOMIC_SEQ_CST) != plan.at) return false;
  switch (plan.fault) {
    case FileFault::kNone:
      return false;
    case FileFault::kKill:
      kill(getpid(), SIGKILL);
      pause();
      return true;
    case FileFault::kNoSpace:
      errno = ENOSPC;
      return true;
    case FileFault::kIoError:
      errno = EIO;
      return true;
  }
  return false;
}

bool Fails(int descriptor) {
  if (!is_on) return false;
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
  const ssize_t size = readlink(link, path, sizeof(path) - 1);
  if (size < 0) return false;
  path[size] = '\0';
  return Fails(path);
}

}  // namespace

void FailFileCall(const std::string& folder, FileFault fault, int64_t at, int64_t* calls) {
  plan.folder_bytes = folder.copy(plan.folder, sizeof(plan.folder));
  plan.fault = fault;
  plan.at = at;
  plan.calls = calls;
  is_on = true;
}

}  // namespace lockstep

// The C library's functions of these names, for the whole program. The system call alone is left of
// them.
extern "C" {

ssize_t write(int descriptor, const void* bytes, size_t size) {
  return lockstep::Fails(descriptor) ? -1 : syscall(SYS_write, descriptor, bytes, size);
}

ssize_t pwrite(int descriptor, const void* bytes, size_t size, off_t offset) {
  return lockstep::Fails(descriptor) ? -1 : syscall(SYS_pwrite64, descriptor, bytes, size, offset);
}

int rename(const char* from, const char* to) noexcept {
  return lockstep::Fails(to) ? -1 : static_cast<int>(syscall(SYS_rename, from, to));
}

// A process that is killed leaves what it has written, synchronised or not: nothing of these tests
// is seen by waiting for the disk.
int fsync(int descriptor) { return lockstep::Fails(descriptor) ? -1 : 0; }

int ftruncate(int descriptor, off_t size) noexcept {
  return lockstep::Fails(descriptor) ? -1
                                     : static_cast<int>(syscall(SYS_ftruncate, descriptor, size));
}

int mkdir(const char* path, mode_t mode) noexcept {
  return lockstep::Fails(path) ? -1 : static_cast<int>(syscall(SYS_mkdir, path, mode));
}

int unlink(const char* path) noexcept {
  return lockstep::Fails(path) ? -1 : static_cast<int>(syscall(SYS_unlink, path));
}

int remove(const char* path) noexcept {
  if (lockstep::Fails(path)) return -1;
  const long removed = syscall(SYS_unlink, path);
  return static_cast<int>(removed == 0 || errno != EISDIR ? removed : syscall(SYS_rmdir, path));
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  const bool is_below = folder != AT_FDCWD && path[0] != '/';
  if (is_below ? lockstep::Fails(folder) : lockstep::Fails(path)) return -1;
  return static_cast<int>(syscall(SYS_unlinkat, folder, path, flags));
}

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  if ((flags & O_CREAT) != 0 && lockstep::Fails(path)) return -1;
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

}  // extern "C"
