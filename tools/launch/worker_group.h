// The ranks of a run as processes, which a launcher (mpirun, srun) has started together.

#pragma once

#include <sys/types.h>  // pid_t

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/file.h"

namespace lockstep {

// How a group has ended.
struct GroupEnd {
  int exit_code = 0;                      // of the launcher; 0 where a signal has ended it
  int signal = 0;                         // that has ended the launcher, or 0
  std::map<std::string, int> ranks = {};  // that a signal has ended before the others, by number

  // "rank 2: killed by signal 9 (Killed)", "the launcher: ...", "exit code 69"
  std::string Describe() const;
};

// A folder for what MPI and workers leave while they run: in the memory of this host where that is
// a file system, named after the run, removed at the end. One program at a time has it. What one
// that was killed has left is removed by the next one of the same run.
class GroupFolder {
 public:
  // Where the folder of a run is, or would be.
  static std::string PathOf(const std::string& run_directory);
  // FailedPrecondition where another launcher runs the run of this directory.
  static absl::StatusOr<GroupFolder> Make(const std::string& run_directory);
  GroupFolder(GroupFolder&&) = default;
  GroupFolder& operator=(GroupFolder&&) = delete;
  ~GroupFolder();

  const std::string& path() const { return path_; }
  // Removes all that a group has left.
  absl::Status Clear() const;

 private:
  GroupFolder(std::string path, FileDescriptor lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;
  FileDescriptor lock_;
};

// A running group. No process of it is left when this object goes, nor when this process ends in
// any way: each ends with its parent. Orphans become children of this process (a subreaper), which
// must have no other children meanwhile, and hold SIGCHLD back (sigprocmask).
class WorkerGroup {
 public:
  // `launcher`: "mpirun -n 4", by words; `worker`: the path of :worker; `program`: what each rank
  // runs, with its arguments. NotFound where the launcher is not on PATH.
  static absl::StatusOr<WorkerGroup> Start(const std::vector<std::string>& launcher,
                                           const std::string& worker, const GroupFolder& folder,
                                           const std::vector<std::string>& program);
  WorkerGroup(WorkerGroup&& other) noexcept;
  WorkerGroup& operator=(WorkerGroup&&) = delete;
  ~WorkerGroup();

  // Sends a signal to the launcher, which passes SIGUSR1 on to all ranks. While it runs.
  void Signal(int number) const;
  // Whether the launcher still runs. Waits for nothing.
  bool IsRunning();
  // How it ended; waits until no process of it is left. Once, after IsRunning has returned false.
  GroupEnd End();

 private:
  WorkerGroup(pid_t launcher, std::string folder)
      : launcher_(launcher), folder_(std::move(folder)) {}

  pid_t launcher_;  // -1: has ended, or moved from
  std::string folder_;
  int status_ = 0;  // as waitpid has it
};

}  // namespace lockstep
