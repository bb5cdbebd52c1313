// The ranks of a run as processes, which a launcher (mpirun, srun) has started together.

#pragma once

#include <sys/types.h>  // pid_t

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/file.h"
#include "tools/launch/launcher_output.h"

namespace lockstep {

// How a group has ended.
struct GroupEnd {
  int exit_code = 0;                      // of the launcher; 0 where a signal has ended it
  int signal = 0;                         // that has ended the launcher, or 0
  std::map<std::string, int> ranks = {};  // that a signal has ended before the others, by number
  bool has_told = false;  // a rank on this host has ended with an error, and ranks tell theirs
  // The launcher has told ranks on this host to end, or they have ended with an error, and none of
  // them with another one than kRankLostExitCode. The launcher's exit code does not say so: that of
  // an mpirun that was told to end itself (SIGTERM) is 1.
  bool only_lost = false;
  std::string reason = {};  // why it was ended from here; empty: it was not
  std::string told = {};    // why ranks ended, as they have told; empty: none has

  // As it was seen from here: "rank 2: killed by signal 9 (Killed)", "the launcher: ...", "exit
  // code 69", or the reason.
  std::string Describe() const;
  // What to write down: what the ranks have told, if no signal has ended them or the launcher.
  std::string Cause() const;
};

// A folder for what MPI and workers leave while they run: in the memory of this host where that is
// a file system, named after the run, removed at the end. One program at a time has it. What one
// that was killed has left is removed by the next one of the same run.
// On other hosts workers make the folder of the same path, and remove it (host_folder.h).
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

// A running group. What its ranks write to the standard error stream is passed on; what the
// launcher adds itself is shown at the end, and only where no rank has said why it ended. No
// process of it is left when this object goes, nor when this process ends in any way: each ends
// with its parent. Under srun ranks are Slurm's processes, which srun, or what a killed srun
// leaves, has Slurm end. Orphans become children of this process (a subreaper), which must have no
// other children meanwhile, and hold SIGCHLD back (sigprocmask). They have three seconds to end by
// themselves, and are killed then.
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
  // Whether the launcher still runs. Waits for nothing. Passes on what ranks have written to the
  // standard error stream meanwhile.
  bool IsRunning();
  // Whether a rank on this host has ended before its time: with an error of its own, or by a signal
  // that is not the launcher's.
  bool HasLostRank() const;
  // How it ended; waits until no process of it is left. Once, after IsRunning has returned false.
  GroupEnd End();
  // Ends it, whatever it does, in the place of End. Its exit code is kRankLostExitCode.
  GroupEnd EndNow(std::string reason);

 private:
  WorkerGroup(pid_t launcher, std::string folder, FileDescriptor errors)
      : launcher_(launcher), folder_(std::move(folder)), errors_(std::move(errors)) {}
  void PassOn();
  // Reaps what the launcher has left. It has a moment to end by itself: a killed srun leaves a
  // process that has Slurm end the ranks, which are children of nobody here. The rest is killed;
  // children of what is killed end with it, or come to us.
  void EndChildren();
  // The numbers in files that workers on this host have left, by the rank that follows `prefix` in
  // a file's name.
  std::map<std::string, int> NumbersIn(const std::string& prefix) const;

  pid_t launcher_;  // -1: has ended, or moved from
  std::string folder_;
  FileDescriptor errors_;  // what launcher and ranks write to the standard error stream
  LauncherOutput output_;
  int status_ = 0;  // as waitpid has it
};

}  // namespace lockstep
