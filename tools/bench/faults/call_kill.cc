#include "tools/bench/faults/call_kill.h"

#include <fcntl.h>  // O_CREAT
#include <sys/mman.h>
#include <unistd.h>  // ftruncate

#include <cerrno>

#include "absl/status/status.h"
#include "core/base/file.h"
#include "core/base/status.h"

namespace lockstep {

void CallKill::Ask(int victim, CallMoment at, int64_t moments_before, bool changes) {
  rank = victim;
  moment = at;
  only_changes = changes;
  moments_left = moments_before;
  state = kAsked;  // last: ranks look at it first
}

absl::StatusOr<CallKill*> MapCallKill(const std::string& path, bool make) {
  LS_ASSIGN_OR_RETURN(const FileDescriptor file,
                      OpenRegularFile(path, O_RDWR | (make ? O_CREAT | O_TRUNC : 0)));
  if (make && ftruncate(file.get(), sizeof(CallKill)) != 0) {
    return absl::ErrnoToStatus(errno, path);
  }
  void* const memory =
      mmap(nullptr, sizeof(CallKill), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return absl::ErrnoToStatus(errno, path);
  return static_cast<CallKill*>(memory);
}

}  // namespace lockstep
