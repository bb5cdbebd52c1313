// What the program does with checkpoints. A checkpoint is named by its own path, by the directory
// of its run, or by the folder of its run's checkpoints; the latter two stand for the newest.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/checkpoint_metadata.h"
#include "core/checkpoint/in_memory.h"

namespace lockstep {

// The path of the checkpoint that a user names. NotFound if there is none, also where all that a
// folder holds were set aside (*.damaged, *.suspect), which stand for no run.
absl::StatusOr<std::string> ResolveCheckpoint(const std::string& named);

// A checkpoint of a folder, as a list shows it.
struct ListedCheckpoint {
  enum class Kind {
    kGoesOn,   // a run may go on from it
    kBest,     // of the lowest validation loss, in best/ of the run's directory
    kSuspect,  // set aside: saved while wrong bits may have come up
    kDamaged,  // set aside: a run found it damaged
  };
  std::string path;
  CheckpointInfo info;
  int64_t files = 0, bytes = 0, tensors = 0;
  // An error, and the numbers are missing: its headers are damaged (IsDamage), or this program
  // cannot read them.
  absl::Status status;
  Kind kind = Kind::kGoesOn;

  bool is_set_aside() const { return kind == Kind::kSuspect || kind == Kind::kDamaged; }
};
// The checkpoints of a run's directory or of a folder, or the one that is named: by kind, and
// oldest first. Reads headers alone. NotFound if there is none.
absl::StatusOr<std::vector<ListedCheckpoint>> ListAll(const std::string& named);

// All damage of a checkpoint: an error for each tensor that is not what was saved, or one error for
// files and headers that cannot be read. Empty: each byte is the one that was saved.
std::vector<absl::Status> FindDamage(const std::string& path);

// How a tensor differs between two checkpoints.
struct TensorDifference {
  std::string tensor;
  std::string what;  // "is only in a", "is F32[2, 3] and F32[3, 2]"; empty: see below
  int64_t elements = 0, differing = 0;
  int64_t first = 0;                // index of the first element that differs
  double first_a = 0, first_b = 0;  // its values
  double largest = 0;               // absolute difference of any element
};
// What differs between two checkpoints, of any meshes: an entry for each tensor that is not the
// same to the bit, in the order of names. DataLoss where one of them is damaged.
struct CheckpointDifferences {
  CheckpointInfo a, b;
  int64_t tensors = 0;  // that both have
  std::vector<TensorDifference> differences;
};
absl::StatusOr<CheckpointDifferences> Compare(const std::string& a, const std::string& b);

// Writes a checkpoint again below `folder`, which may have no checkpoint of the same step: with 1
// shard as one whole file, else as so many shards, each with an equal part of each tensor. Holds
// what it reads to its checksums. Takes memory for one shard at a time. Returns the new path.
// InvalidArgument for more shards than the largest tensor has elements: some would hold nothing.
absl::StatusOr<std::string> Reshape(const std::string& from, const std::string& folder,
                                    int64_t shards);

// Copies of a run's state in this machine's memory (checkpoint.in_memory_every).
struct ListedCopies {
  enum class Need {
    kRunMayGoOn,    // the run is not complete
    kRunIsGone,     // its directory was removed, or has another path now
    kRunIsOver,     // the run is complete; its summary has all steps of the copies
    kRunIsUnknown,  // the folder does not say which run it is of: an earlier version made it
  };
  FoundInMemoryFolder folder;
  Need need = Need::kRunMayGoOn;

  // Whether no run needs them any more, as far as can be seen.
  bool is_left_over() const { return need == Need::kRunIsGone || need == Need::kRunIsOver; }
};
// All copies that this user has in this machine's memory.
absl::StatusOr<std::vector<ListedCopies>> ListCopies();

// Removes copies that are left over. FailedPrecondition where a program uses the run's directory.
absl::Status RemoveLeftOver(const ListedCopies& copies);

// Removes the copies of the run in that directory, whether it needs them or not. NotFound where it
// has none here, FailedPrecondition where a program uses the directory.
absl::Status RemoveCopiesOf(const std::string& run_directory);

}  // namespace lockstep
