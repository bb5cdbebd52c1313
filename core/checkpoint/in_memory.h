// A run's checkpoints in the memory of a machine (checkpoint.in_memory_every), beside those on its
// disk: files of the same form in a folder of /dev/shm, or of the folder that the environment
// variable LOCKSTEP_MEMORY names. It outlives the ranks that wrote them, threads or processes, and
// whoever has started these. It does not outlive the machine, nor is it seen from another one: of
// several machines each has a part (core/checkpoint/spread_copies.h).

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/checkpoint_folder.h"

namespace lockstep {

// The file of a run directory with a random text, the id of the run in it. A run that begins anew
// writes another one, so that nobody takes copies of the earlier run for its own: machines without
// a rank of the new run may still have these. Runs of earlier versions lack the file.
inline constexpr char kRunIdFile[] = "run_id";
// Writes the id of a run that begins anew.
absl::Status WriteRunId(const std::string& run_directory);

// The folder of the run in a run directory that exists; empty where it does not, or where its id
// cannot be read. The folder may not be there.
std::string InMemoryFolder(const std::string& run_directory);

// Whether the path of a checkpoint is in memory.
bool IsInMemory(const std::string& checkpoint);

// A number for the memory that the folder is in: ranks with the same one see each other's files.
uint64_t IdentityOfMemory();

// Makes the folder, for nobody but this user, writes the path of the run directory into it, and
// checks that `free_bytes` are free for it, beside all that it holds already. FailedPrecondition
// where this machine has no such memory or another user has the folder, ResourceExhausted where
// there is no room.
absl::Status MakeInMemoryFolder(const std::string& run_directory, int64_t free_bytes);

// The newest copy, and the one that is about to replace it.
inline constexpr int64_t kMostInMemoryCopies = 2;
// The same for copies of `copy_bytes` each: there must be room for the next one beside all that the
// folder holds, and then for the one behind it. Removes what a kill has left: drafts, and all
// copies but the newest.
absl::Status MakeRoomForCopies(const std::string& run_directory, int64_t copy_bytes);

// --- copies that stand apart: a start of ranks does not go on from them, but it may yet fail, and
// another start may want them. For the one rank of a machine that tidies up ----------------------

// Moves a copy of the folder into a folder below it.
absl::Status SetCopyApart(const std::string& run_directory, const FoundCheckpoint& copy);
// Puts copies back that stand apart, but for those in whose place another copy is.
void PutCopiesBack(const std::string& run_directory);
// The copies that stand apart, oldest first by their names.
std::vector<FoundCheckpoint> ListCopiesApart(const std::string& run_directory);
// Whether the path of a checkpoint is that of a copy that stands apart.
bool IsApart(const std::string& checkpoint);
// Removes all that stands apart, when the ranks go on.
void RemoveCopiesApart(const std::string& run_directory);

// Removes the folder, if it is there.
void RemoveInMemoryFolder(const std::string& run_directory);
// Removes folders of earlier runs in the run directory from this machine's memory; none where the
// run has no id.
void RemoveFoldersOfEarlierRuns(const std::string& run_directory);

// The folder of some run, as it is found without knowing the run.
struct FoundInMemoryFolder {
  std::string path;
  // The run directory that the folder is of, by its full path; empty where the folder does not say,
  // as those of earlier versions do not.
  std::string run_directory;
  // Whether that directory is there.
  bool has_run_directory = false;
  // The steps behind the newest whole checkpoint; -1: there is none.
  int64_t steps = -1;
  int64_t bytes = 0;  // of all files in the folder
};
// The folders of this user in this machine's memory, by their names.
absl::StatusOr<std::vector<FoundInMemoryFolder>> ListInMemoryFolders();

// The checkpoints of a run on the disk and in memory, oldest first by their names; of two with the
// same step the one in memory comes later. With copies that stand apart.
absl::StatusOr<std::vector<FoundCheckpoint>> ListRunCheckpoints(const std::string& run_directory);

// Whether there is a copy in memory and no checkpoint on the disk that is as new. True as well
// where checkpoints cannot be listed: a copy may then be all that is left.
bool IsNewestInMemory(const std::string& run_directory);

}  // namespace lockstep
