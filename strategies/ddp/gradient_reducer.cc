#include "strategies/ddp/gradient_reducer.h"

#include <vector>

#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep {

GradientReducer::GradientReducer(Replica& replica, Communicator& ranks, Kernels& kernels,
                                 DType dtype, const BucketOptions& options)
    : replica_(replica), ranks_(ranks) {
  std::vector<int64_t> bytes;
  for (const Parameter* parameter : replica.parameters()) {
    bytes.push_back(parameter->held_shape().elements() * SizeOf(dtype));
  }
  plan_ = PlanBuckets(bytes, options.first_bucket_bytes, options.bucket_bytes);
  flats_ = MakeBuckets(plan_, replica.parameters(), dtype, kernels);
  for (size_t bucket = 0; bucket < plan_.buckets.size(); ++bucket) {
    for (size_t i : plan_.buckets[bucket]) {
      Parameter* parameter = replica.parameters()[i];
      owners_[parameter] = {parameter, bucket};
      for (Parameter* tied : replica.TiedTo(*parameter)) owners_[tied] = {parameter, bucket};
    }
  }
  replica.AllocateGradients();  // of tied parameters, which are added to their owners' first
}

int64_t GradientReducer::bytes() const {
  int64_t sum = 0;
  for (const Tensor& flat : flats_) sum += flat.bytes();
  return sum;
}

void GradientReducer::Begin(const Tape& tape) {
  waiting_.assign(plan_.buckets.size(), 0);
  uses_.clear();
  next_ = 0;
  for (const auto& [leaf, owner] : owners_) {
    if (tape.Uses(*leaf) > 0) ++uses_[owner.parameter];
  }
  for (size_t bucket = 0; bucket < plan_.buckets.size(); ++bucket) {
    for (size_t i : plan_.buckets[bucket]) {
      Parameter* parameter = replica_.parameters()[i];
      if (uses_[parameter] > 0) {
        ++waiting_[bucket];
      } else {
        replica_.CompleteGradient(*parameter);
      }
    }
  }
  LaunchComplete();
}

void GradientReducer::Ready(const Leaf& leaf) {
  const Owner& owner = owners_.at(&leaf);
  if (--uses_[owner.parameter] > 0) return;
  replica_.CompleteGradient(*owner.parameter);
  if (--waiting_[owner.bucket] == 0) LaunchComplete();
}

void GradientReducer::Finish() {
  CHECK_EQ(next_, flats_.size()) << "backward ended with a bucket that is not complete";
  ThrowIfError(WaitAll(absl::MakeSpan(works_)));
  works_.clear();
}

void GradientReducer::LaunchComplete() {
  while (next_ < flats_.size() && waiting_[next_] == 0) {
    works_.push_back(ranks_.AllReduce(flats_[next_], flats_[next_], ReduceOp::kSum, "gradients"));
    ++next_;
  }
}

}  // namespace lockstep
