#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/checkpoint/checkpoint_metadata.h"
#include "core/checkpoint/state_tensor.h"
#include "core/comm/communicator.h"
#include "core/kernels/kernels.h"

namespace lockstep {

// A checkpoint as it is written, under another name than its own: one rank makes it, then all fill
// it, each with what it saves, and finish it together.
class Draft {
 public:
  virtual ~Draft() = default;
  virtual absl::Status Make() = 0;
  // When this returns, what it wrote is on the disk. OutOfRange, naming the tensor, if a weight is
  // infinite or NaN: nobody could go on from that.
  virtual absl::Status Fill(const std::vector<StateTensor>& state, Kernels& kernels) = 0;
  // Called by all ranks when all have filled it.
  virtual absl::Status Finish(Communicator& ranks) = 0;
};

// One safetensors file. The list of tensors is the same on all ranks.
std::unique_ptr<Draft> MakeWholeDraft(const std::string& path, const CheckpointInfo& info,
                                      const std::vector<StateTensor>& state);

// A folder, in which each rank that saves anything writes the file of its number.
std::unique_ptr<Draft> MakeShardedDraft(const std::string& path, const CheckpointInfo& info,
                                        const ShardNumber& number);

// Whether this rank saves the part. Of a tensor without elements there is the name to save.
bool IsSaved(const StateTensor& part);

}  // namespace lockstep
