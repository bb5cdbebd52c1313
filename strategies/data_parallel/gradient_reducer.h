#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/comm/communicator.h"
#include "core/comm/work.h"
#include "core/run/local_model.h"
#include "core/run/stage_pass.h"
#include "strategies/data_parallel/buckets.h"

namespace lockstep {

// Bytes of gradients that are reduced together: see PlanBuckets.
struct BucketLimits {
  int64_t first = int64_t{1} << 20;
  int64_t others = int64_t{25} << 20;
};

// Sums the gradients of a local model over its rank's shards, and then over the ranks that hold the
// same blocks, bucket by bucket, while they are still being computed.
class GradientReducer {
 public:
  // Gives the gradients of the model's uses their memory, in buckets of `dtype`, in which they are
  // summed. Model and ranks outlive it.
  GradientReducer(LocalModel& local_model, Communicator& ranks, DType dtype,
                  const BucketLimits& limits);

  // Of all buckets, what lies between their tensors included.
  int64_t bytes() const;

  // Hooks for the backward through `blocks` that completes their gradients of one of the rank's
  // shards.
  BackwardHooks Completing(const BlockRange& blocks, int64_t shard);
  // After it: ends the shard for what no backward has reached.
  void Completed(const BlockRange& blocks, int64_t shard);

  // Waits until all buckets hold the sum over the ranks. Throws StatusException.
  void Finish();

 private:
  struct Use {
    Parameter* parameter;
    size_t bucket;
    int64_t ended = 0;  // shards of the step
  };

  void BeginStep();
  // A use has its gradient of a shard.
  void Ready(const Leaf& use, int64_t shard);
  void LaunchComplete();

  LocalModel& local_model_;
  Communicator& ranks_;
  BucketPlan plan_;
  std::vector<Tensor> flats_;
  absl::flat_hash_map<const Leaf*, Use> uses_;
  std::vector<Work> works_;
  // How many uses each bucket still waits for in this step, and which bucket is launched next.
  std::vector<size_t> waiting_;
  size_t next_ = 0;
};

}  // namespace lockstep
