#include "strategies/ddp/gradient_reducer.h"

#include <utility>

#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep {

BucketLimits ReadBucketLimits(ConfigReader& reader) {
  BucketLimits limits;
  reader.Read("first_bucket_bytes", &limits.first, {.at_least = 1});
  reader.Read("bucket_bytes", &limits.others, {.at_least = 1});
  return limits;
}

GradientReducer::GradientReducer(Stage& stage, Communicator& ranks, DType dtype,
                                 const BucketLimits& limits, CompleteFunction complete)
    : stage_(stage), ranks_(ranks), complete_(std::move(complete)) {
  const std::vector<Parameter*>& parameters = stage.parameters();
  std::vector<int64_t> bytes;
  for (const Parameter* parameter : parameters) {
    bytes.push_back(parameter->held_shape().elements() * SizeOf(dtype));
  }
  plan_ = PlanBuckets(bytes, limits.first, limits.others);
  flats_ = MakeBuckets(plan_, parameters, dtype, stage.rank().kernels);
  for (size_t bucket = 0; bucket < plan_.buckets.size(); ++bucket) {
    for (size_t i : plan_.buckets[bucket]) {
      Parameter* parameter = parameters[i];
      owners_[parameter] = {parameter, bucket};
      for (Parameter* tied : stage.TiedTo(*parameter)) owners_[tied] = {parameter, bucket};
    }
  }
  stage.AllocateGradients();  // of tied parameters, which are added to their owners' first
}

int64_t GradientReducer::bytes() const {
  int64_t sum = 0;
  for (const Tensor& flat : flats_) sum += flat.bytes();
  return sum;
}

BackwardHooks GradientReducer::hooks() {
  return {.before = [this](const Tape& tape) { Begin(tape); },
          .leaf_ready = [this](Leaf& leaf) { Ready(leaf); }};
}

// Parameters without a use in this backward have received all that they will.
void GradientReducer::Begin(const Tape& tape) {
  waiting_.assign(plan_.buckets.size(), 0);
  uses_.clear();
  next_ = 0;
  for (const auto& [leaf, owner] : owners_) {
    if (tape.Uses(*leaf) > 0) ++uses_[owner.parameter];
  }
  for (size_t bucket = 0; bucket < plan_.buckets.size(); ++bucket) {
    for (size_t i : plan_.buckets[bucket]) {
      Parameter* parameter = stage_.parameters()[i];
      if (uses_[parameter] > 0) {
        ++waiting_[bucket];
      } else {
        complete_(*parameter);
      }
    }
  }
  LaunchComplete();
}

// A leaf has its gradient: a parameter, or one tied to it. Those tied to another stage's are not
// reduced here: their owner is.
void GradientReducer::Ready(const Leaf& leaf) {
  const auto found = owners_.find(&leaf);
  if (found == owners_.end()) return;
  const Owner& owner = found->second;
  if (--uses_[owner.parameter] > 0) return;
  complete_(*owner.parameter);
  if (--waiting_[owner.bucket] == 0) LaunchComplete();
}

void GradientReducer::Finish() {
  CHECK_EQ(next_, flats_.size()) << "backward ended with a bucket that is not complete";
  ThrowIfError(WaitAll(absl::MakeSpan(works_)));
  works_.clear();
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
