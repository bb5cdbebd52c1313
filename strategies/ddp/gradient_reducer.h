#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/comm/communicator.h"
#include "core/train/replica.h"
#include "strategies/ddp/buckets.h"

namespace lockstep {

struct BucketOptions {
  int64_t first_bucket_bytes = 1 << 20;
  int64_t bucket_bytes = 25 << 20;
};

// Sums the gradients of all ranks, bucket by bucket, while they are still being computed.
class GradientReducer {
 public:
  // The gradients of the replica's parameters become views into buckets of `dtype`.
  GradientReducer(Replica& replica, Communicator& ranks, Kernels& kernels, DType dtype,
                  const BucketOptions& options);

  // Of all buckets, what lies between their tensors included.
  int64_t bytes() const;

  // Before the backward that completes the step's gradients. Parameters without a use in it have
  // received all that they will.
  void Begin(const Tape& tape);

  // A leaf has its gradient: a parameter, or one tied to it.
  void Ready(const Leaf& leaf);

  // Waits until all buckets hold the sum over the ranks. Throws StatusException.
  void Finish();

 private:
  struct Owner {
    Parameter* parameter;
    size_t bucket;
  };

  // Launches complete buckets, but never one before another that precedes it: all ranks must make
  // the same calls in the same order.
  void LaunchComplete();

  Replica& replica_;
  Communicator& ranks_;
  BucketPlan plan_;
  std::vector<Tensor> flats_;
  absl::flat_hash_map<const Leaf*, Owner> owners_;
  std::vector<Work> works_;
  // Of the backward in work: how many leaves still owe a parameter its gradient, how many
  // parameters a bucket, and which bucket is launched next.
  absl::flat_hash_map<const Parameter*, int> uses_;
  std::vector<int> waiting_;
  size_t next_ = 0;
};

}  // namespace lockstep
