#include "strategies/data_parallel/gradient_reducer.h"

#include <utility>

#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep {

GradientReducer::GradientReducer(LocalModel& local_model, Communicator& ranks, DType dtype,
                                 const BucketLimits& limits, CompleteFunction complete)
    : local_model_(local_model), ranks_(ranks), complete_(std::move(complete)) {
  const std::vector<Parameter*>& parameters = local_model.parameters();
  std::vector<int64_t> bytes;
  for (const Parameter* parameter : parameters) {
    bytes.push_back(parameter->held_shape().elements() * SizeOf(dtype));
  }
  plan_ = PlanBuckets(bytes, limits.first, limits.others);
  flats_ = MakeBuckets(plan_, parameters, dtype, local_model.rank().kernels);
  for (size_t bucket = 0; bucket < plan_.buckets.size(); ++bucket) {
    for (size_t i : plan_.buckets[bucket]) {
      Parameter* parameter = parameters[i];
      owners_[parameter] = {parameter, bucket};
      for (Parameter* tied : local_model.TiedTo(*parameter)) owners_[tied] = {parameter, bucket};
    }
  }
  local_model.AllocateGradients();  // of tied parameters, which are added to their owners' first
  BeginStep();
}

int64_t GradientReducer::bytes() const {
  int64_t sum = 0;
  for (const Tensor& flat : flats_) sum += flat.bytes();
  return sum;
}

BackwardHooks GradientReducer::hooks(const BlockRange& blocks) {
  return {.before = [this, blocks](const Tape& tape) { Begin(tape, blocks); },
          .leaf_ready = [this](Leaf& leaf) { Ready(leaf); }};
}

void GradientReducer::BeginStep() {
  next_ = 0;
  leaves_.clear();
  owing_.clear();
  waiting_.clear();
  for (const std::vector<size_t>& bucket : plan_.buckets) {
    waiting_.push_back(static_cast<int>(bucket.size()));
  }
  for (const BlockRange& blocks : local_model_.ranges()) {
    for (int64_t i = blocks.begin; i < blocks.end; ++i) {
      for (const Parameter* parameter : local_model_.model().blocks[i]->Parameters()) {
        // Those tied to another stage's are not reduced here: their owner is.
        const auto found = owners_.find(parameter);
        if (found == owners_.end()) continue;
        owing_.insert(parameter);
        ++leaves_[found->second.parameter];
      }
    }
  }
}

// Parameters without a use in this backward have received all that they will.
void GradientReducer::Begin(const Tape& tape, const BlockRange& blocks) {
  for (int64_t i = blocks.begin; i < blocks.end; ++i) {
    for (const Parameter* parameter : local_model_.model().blocks[i]->Parameters()) {
      if (tape.Uses(*parameter) == 0) Ready(*parameter);
    }
  }
}

// A leaf has its gradient: a parameter, or one tied to it.
void GradientReducer::Ready(const Leaf& leaf) {
  if (owing_.erase(&leaf) == 0) return;
  const Owner& owner = owners_.at(&leaf);
  if (--leaves_[owner.parameter] > 0) return;
  complete_(*owner.parameter);
  if (--waiting_[owner.bucket] == 0) LaunchComplete();
}

void GradientReducer::Finish() {
  // In the order of the parameters, which is the same on all ranks.
  for (const Parameter* parameter : local_model_.model().Parameters()) Ready(*parameter);
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
