#include "strategies/data_parallel/gradient_reducer.h"

#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep {

GradientReducer::GradientReducer(LocalModel& local_model, Communicator& ranks, DType dtype,
                                 const BucketLimits& limits)
    : local_model_(local_model), ranks_(ranks) {
  const std::vector<Parameter*>& uses = local_model.uses();
  std::vector<int64_t> bytes;
  for (const Parameter* use : uses) {
    bytes.push_back(use->held_shape().elements() * SizeOf(dtype));
  }
  plan_ = PlanBuckets(bytes, limits.first, limits.others);
  flats_ = MakeBuckets(plan_, uses, dtype, local_model.rank().kernels);
  for (size_t bucket = 0; bucket < plan_.buckets.size(); ++bucket) {
    for (const size_t i : plan_.buckets[bucket]) uses_[uses[i]] = {uses[i], bucket};
  }
  local_model.AllocateGradients();  // their partial sums
  BeginStep();
}

int64_t GradientReducer::bytes() const {
  int64_t sum = 0;
  for (const Tensor& flat : flats_) sum += flat.bytes();
  return sum;
}

BackwardHooks GradientReducer::Completing(const BlockRange& blocks, int64_t shard) {
  // Uses that this backward does not come to have received all that they will.
  const auto before = [this, blocks, shard](const Tape& tape) {
    for (int64_t i = blocks.begin; i < blocks.end; ++i) {
      for (const Parameter* use : local_model_.model().blocks[i]->Parameters()) {
        if (tape.Uses(*use) == 0) Ready(*use, shard);
      }
    }
  };
  return {.before = before, .leaf_ready = [this, shard](Leaf& leaf) { Ready(leaf, shard); }};
}

void GradientReducer::Completed(const BlockRange& blocks, int64_t shard) {
  for (int64_t i = blocks.begin; i < blocks.end; ++i) {
    for (const Parameter* use : local_model_.model().blocks[i]->Parameters()) Ready(*use, shard);
  }
}

void GradientReducer::BeginStep() {
  next_ = 0;
  waiting_.clear();
  for (const std::vector<size_t>& bucket : plan_.buckets) waiting_.push_back(bucket.size());
  for (auto& [leaf, use] : uses_) use.ended = 0;
}

void GradientReducer::Ready(const Leaf& leaf, int64_t shard) {
  const auto found = uses_.find(&leaf);
  if (found == uses_.end() || found->second.ended != shard) return;
  Use& use = found->second;
  ++use.ended;
  if (local_model_.EndShard(*use.parameter) && --waiting_[use.bucket] == 0) LaunchComplete();
}

void GradientReducer::Finish() {
  CHECK_EQ(next_, flats_.size());
  ThrowIfError(WaitAll(absl::MakeSpan(works_)));
  works_.clear();
  BeginStep();
}

// Launches complete buckets, but never one before another that precedes it: all ranks must make the
// same calls in the same order.
void GradientReducer::LaunchComplete() {
  while (next_ < flats_.size() && waiting_[next_] == 0) {
    const Tensor& flat = flats_[next_++];
    if (ranks_.size() == 1) continue;
    works_.push_back(ranks_.AllReduce(flat, flat, ReduceOp::kSum, "gradients"));
  }
}

}  // namespace lockstep
