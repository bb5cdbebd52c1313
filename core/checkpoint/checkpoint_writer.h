#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/base/background_task.h"
#include "core/checkpoint/checkpoint_costs.h"
#include "core/checkpoint/checkpoint_files.h"
#include "core/checkpoint/checkpoint_metadata.h"
#include "core/checkpoint/draft.h"
#include "core/checkpoint/state_tensor.h"
#include "core/comm/communicator.h"
#include "core/kernels/kernels.h"
#include "core/tensor/allocator.h"

namespace lockstep {

struct SaveOptions {
  CheckpointFiles files = CheckpointFiles::kSharded;
  int64_t keep = 2;  // number of the newest checkpoints that stay; the others are deleted
  // Keeps the newest one that is no newer than the run's newest check (guard.every), too: later
  // ones may turn out to have wrong bits.
  bool keeps_checked = false;
  // What must be on the disk before a checkpoint with `steps` behind it gets its name, as the
  // losses of those steps. Called on rank 0, perhaps beside training.
  std::function<absl::Status(int64_t steps)> sync = [](int64_t) { return absl::OkStatus(); };
};

// Writes checkpoints of a run beside its training. All ranks call the same members in the same
// order, from the threads that train.
//
//   CheckpointWriter writer(folder, options, kernels, ranks);
//   writer.Reserve(state, host_allocator);
//   each step:  train;  writer.Advance();  when one is due: writer.Begin(info, state)
//   at the end: writer.Save(info, state)
//
// Begin copies the state in memory. A thread of low priority then checks, hashes and writes the
// copy. Advance, between steps, lets ranks agree on what they have written; when all are done rank
// 0 gives the checkpoint its name and removes old ones, on such a thread too. No thread but the
// callers' talks to other ranks. A program that is killed meanwhile loses this checkpoint alone.
//
// An error of one rank is that error on all, from the next member called, and leaves the
// checkpoints that were there: OutOfRange for weights that are infinite or NaN, DataLoss where the
// run's directory, around `folder`, is not there.
class CheckpointWriter {
 public:
  CheckpointWriter(std::string folder, SaveOptions options, Kernels& kernels, Communicator& ranks);
  // Gives up a checkpoint that is not whole.
  ~CheckpointWriter();

  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Allocates the memory of copies, for states of these tensors, in `host` and books it as
  // kCheckpoint. The memory is touched, so that the first copy is as fast as any other. Throws
  // StatusException where there is no room.
  void Reserve(const std::vector<StateTensor>& state, Allocator& host);
  bool has_reserved() const { return !copy_.empty(); }

  // Begins a checkpoint of the state as it is now, after Reserve. Finishes an earlier one first.
  absl::Status Begin(const CheckpointInfo& info, const std::vector<StateTensor>& state);
  // Goes on with the checkpoint that was begun, if any, without waiting for a disk.
  absl::Status Advance();
  // Waits until the checkpoint that was begun, if any, has its name.
  absl::Status Finish();
  // Writes a checkpoint from the state itself, and waits for it: for the last one of a run. However
  // long a disk takes, ranks hear of each other meanwhile, as in Finish.
  absl::Status Save(const CheckpointInfo& info, const std::vector<StateTensor>& state);

  // Waits for what this rank does of the checkpoint that was begun, if any, and forgets it. Asks no
  // other rank.
  void GiveUp();

  bool is_writing() const { return writing_.has_value(); }
  const CheckpointCosts& costs() const { return costs_; }

 private:
  // A checkpoint on its way to the disk.
  struct Writing {
    CheckpointInfo info;
    std::string path;
    std::unique_ptr<Draft> draft;
    int64_t begun_nanos = 0;
    bool is_filled = false;  // all ranks have written; the task is to publish
    // This rank's part of the work. Null: there is nothing to do, or it is done already.
    std::unique_ptr<BackgroundTask> task = nullptr;
    // Low beside training. A checkpoint that is waited for is none of costs().
    BackgroundTask::Priority priority = BackgroundTask::Priority::kLow;
  };

  absl::Status MakeDraft(const CheckpointInfo& info, const std::vector<StateTensor>& state);
  absl::Status Advance(std::chrono::nanoseconds limit);
  absl::Status AdvanceToTheEnd();
  // Completes the draft, names it, and removes old checkpoints: for rank 0.
  absl::Status Publish();
  // Forgets the checkpoint; after an error, with its draft.
  absl::Status End(const absl::Status& status);
  bool is_first() const { return ranks_.rank() == 0; }

  const std::string folder_;
  const SaveOptions options_;
  Kernels& kernels_;
  Communicator& ranks_;
  std::vector<StateTensor> copy_;  // in host memory; empty: nothing is reserved
  std::optional<Writing> writing_;
  CheckpointCosts costs_;
};

// Memory for copies of what this rank saves of a state; empty tensors for what other ranks save.
// Contents are undefined.
std::vector<StateTensor> AllocateCopy(const std::vector<StateTensor>& state, Allocator& allocator);

}  // namespace lockstep
