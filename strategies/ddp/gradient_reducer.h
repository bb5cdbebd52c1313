#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/comm/communicator.h"
#include "core/train/config_reader.h"
#include "core/train/stage.h"
#include "core/train/stage_pass.h"
#include "strategies/ddp/buckets.h"

namespace lockstep {

// How many bytes of gradients are reduced together; see PlanBuckets.
struct BucketLimits {
  int64_t first = 1 << 20;
  int64_t others = 25 << 20;
};

// The keys first_bucket_bytes and bucket_bytes.
BucketLimits ReadBucketLimits(ConfigReader& reader);

// Sums the gradients of a stage over ranks that hold the same one, bucket by bucket, while they are
// still being computed. The backward that completes a step's gradients gets hooks(); then Finish.
class GradientReducer {
 public:
  // `complete` is called for each of the stage's parameters() once nothing here will add to its
  // gradient in this step, and does what Stage::CompleteGradient does.
  using CompleteFunction = std::function<void(Parameter&)>;

  // Gives the gradients their memory. All but `limits` outlive the reducer.
  GradientReducer(Stage& stage, Communicator& ranks, DType dtype, const BucketLimits& limits,
                  CompleteFunction complete);

  // Of all buckets, what lies between their tensors included.
  int64_t bytes() const;

  BackwardHooks hooks();

  // Waits until all buckets hold the sum over the ranks. Throws StatusException.
  void Finish();

 private:
  struct Owner {
    Parameter* parameter;
    size_t bucket;
  };

  void Begin(const Tape& tape);
  void Ready(const Leaf& leaf);
  void LaunchComplete();

  Stage& stage_;
  Communicator& ranks_;
  CompleteFunction complete_;
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
