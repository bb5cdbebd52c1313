// A group's folder on the host of its workers.

#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "core/base/file.h"

namespace lockstep {

// In a group's folder: the launcher holds it (flock) while it runs.
inline constexpr char kLauncherLock[] = "launcher.lock";

// A group's folder (worker_group.h), as one worker uses it. On the launcher's own host the launcher
// clears the folder. On others workers do: the first one removes what an earlier start has left,
// and the last one what is left then. The folder of this start's mpirun daemon, which is there
// before the first worker and after the last one, stays.
//
//   LS_ASSIGN_OR_RETURN(HostFolder host, HostFolder::Enter(folder));
//   ... the worker's program runs ...
//   host.Leave();
class HostFolder {
 public:
  // Makes the folder if it is missing. Called before the worker starts its program. Where the
  // folder is a link or somebody else's, nothing is ever removed.
  static absl::StatusOr<HostFolder> Enter(const std::string& path);
  HostFolder(HostFolder&&) = default;
  HostFolder& operator=(HostFolder&&) = delete;

  // Once, when the program has ended. A worker that is killed leaves its files to the next one.
  void Leave();

 private:
  HostFolder(std::string path, FileDescriptor lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;
  // Shared by all workers on this host until they end; held by one alone that clears the folder.
  // Not open: the folder is the launcher's.
  FileDescriptor lock_;
};

}  // namespace lockstep
