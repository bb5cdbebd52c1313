#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/checkpoint/checkpoint_metadata.h"
#include "core/checkpoint/state_tensor.h"
#include "core/comm/communicator.h"
#include "core/kernels/kernels.h"

namespace lockstep {

// A checkpoint as it is written, under another name than its own: one rank makes it, then all fill
// it, each with what it saves, combine what they know of it, and one rank completes it.
class Draft {
 public:
  virtual ~Draft() = default;
  virtual absl::Status Make() = 0;
  // When this returns, what it wrote is on the disk. OutOfRange, naming the tensor, if a weight is
  // infinite or NaN: nobody could go on from that. Cancelled soon after a stop is requested. Talks
  // to no other rank.
  virtual absl::Status Fill(const std::vector<StateTensor>& state, Kernels& kernels,
                            const std::stop_token& stop) = 0;
  // Called by all ranks when all have filled it. Touches no file.
  virtual absl::Status Combine(Communicator& ranks) = 0;
  // Called by rank 0 at last. When this returns, all of the draft is on the disk.
  virtual absl::Status Complete() = 0;
};

// One safetensors file. The list of tensors is the same on all ranks.
std::unique_ptr<Draft> MakeWholeDraft(const std::string& path, const CheckpointInfo& info,
                                      const std::vector<StateTensor>& state);

// A folder, in which each rank that saves anything writes the file of its number.
std::unique_ptr<Draft> MakeShardedDraft(const std::string& path, const CheckpointInfo& info,
                                        const ShardNumber& number);

// Whether this rank saves the part. A tensor without elements is saved for its name.
bool IsSaved(const StateTensor& part);
// The bytes of all parts that this rank saves.
int64_t SavedBytes(const std::vector<StateTensor>& state);

}  // namespace lockstep
