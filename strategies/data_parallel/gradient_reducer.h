#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "core/comm/communicator.h"
#include "core/run/local_model.h"
#include "core/run/stage_pass.h"
#include "strategies/data_parallel/buckets.h"

namespace lockstep {

// How many bytes of gradients are reduced together; see PlanBuckets.
struct BucketLimits {
  int64_t first = 1 << 20;
  int64_t others = 25 << 20;
};

// Sums the gradients of a local model over the ranks that hold the same blocks, bucket by bucket,
// while they are still being computed. The backward that completes a step's gradients gets hooks(),
// or each that completes those of some blocks; then Finish.
class GradientReducer {
 public:
  // `complete` is called for each of the local model's parameters() once nothing here will add to
  // its gradient in this step, and does what LocalModel::CompleteGradient does.
  using CompleteFunction = std::function<void(Parameter&)>;

  // Gives the gradients their memory. All but `limits` outlive the reducer.
  GradientReducer(LocalModel& local_model, Communicator& ranks, DType dtype,
                  const BucketLimits& limits, CompleteFunction complete);

  // Of all buckets, what lies between their tensors included.
  int64_t bytes() const;

  // Hooks for the backward pass through `blocks`; by default, the rank's only range.
  BackwardHooks hooks(const BlockRange& blocks);
  BackwardHooks hooks() { return hooks(local_model_.ranges()[0]); }

  // Waits until all buckets hold the sum over the ranks, those too whose gradients no backward with
  // hooks has completed. Throws StatusException.
  void Finish();

 private:
  struct Owner {
    Parameter* parameter;
    size_t bucket;
  };

  void BeginStep();
  void Begin(const Tape& tape, const BlockRange& blocks);
  void Ready(const Leaf& leaf);
  void LaunchComplete();

  LocalModel& local_model_;
  Communicator& ranks_;
  CompleteFunction complete_;
  BucketPlan plan_;
  std::vector<Tensor> flats_;
  absl::flat_hash_map<const Leaf*, Owner> owners_;
  std::vector<Work> works_;
  // Of the step: the leaves here that still owe their gradients, how many of them a parameter
  // waits for, how many parameters a bucket, and which bucket is launched next.
  absl::flat_hash_set<const Leaf*> owing_;
  absl::flat_hash_map<const Parameter*, int> leaves_;
  std::vector<int> waiting_;
  size_t next_ = 0;
};

}  // namespace lockstep
