#include "strategies/data_parallel/replicated.h"

#include <cstddef>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "glog/logging.h"
#include "strategies/data_parallel/buckets.h"

namespace lockstep {
namespace {

class Replicated : public DataParallel {
 public:
  Replicated(DataParallelInputs inputs, const BucketLimits& limits)
      : ranks_(inputs.sums_tokens ? inputs.rank.mesh.batch() : inputs.rank.mesh.data()),
        local_model_(inputs.rank, std::move(inputs.model), inputs.MakeLayout(Divided::kNothing),
                     inputs.rank.rank, inputs.settings, inputs.targets_per_sample) {
    const DType dtype = inputs.settings.precision.reduce;
    const std::vector<Parameter*>& uses = local_model_.uses();
    std::vector<int64_t> bytes;
    for (const Parameter* use : uses) bytes.push_back(use->held_shape().elements() * SizeOf(dtype));
    buckets_ = PlanBuckets(bytes, limits.first, limits.others);
    flats_ = MakeBuckets(buckets_, uses, dtype, inputs.rank.kernels);
    for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
      for (const size_t i : buckets_[bucket]) uses_[uses[i]] = {uses[i], bucket};
    }
    local_model_.AllocateGradients();  // their partial sums
  }

  LocalModel& local_model() override { return local_model_; }
  const LocalModel& local_model() const override { return local_model_; }

  Tensor ValuesOf(const Parameter& parameter) const override { return parameter.value; }
  Tensor GradientOf(const Parameter& use) const override { return use.gradient; }
  std::vector<TrainedTensor> Trained() const override { return local_model_.Trained(); }
  std::vector<StateTensor> State() const override { return local_model_.State(); }

  void RoundMasters() override { local_model_.RoundMasters(); }
  void ShareValues() override {}
  void ShareUpdates() override {}

  void BeginStep(double loss_scale) override {
    local_model_.Clear(loss_scale);
    next_ = 0;
    waiting_.clear();
    for (const std::vector<size_t>& bucket : buckets_) waiting_.push_back(bucket.size());
    for (auto& [leaf, use] : uses_) use.ended = 0;
  }

  BackwardHooks Completing(const BlockRange& stage, int64_t shard) override {
    // Uses that this backward does not come to have received all that they will.
    const auto before = [this, stage, shard](const Tape& tape) {
      for (const Parameter* use : ParametersOf(stage)) {
        if (tape.Uses(*use) == 0) Ready(*use, shard);
      }
    };
    return {.before = before, .leaf_ready = [this, shard](Leaf& leaf) { Ready(leaf, shard); }};
  }

  // Ends the shard for what no backward has reached.
  void Completed(const BlockRange& stage, int64_t shard) override {
    for (const Parameter* use : ParametersOf(stage)) Ready(*use, shard);
  }

  void FinishGradients() override {
    CHECK_EQ(next_, flats_.size());
    ThrowIfError(WaitAll(absl::MakeSpan(works_)));
    works_.clear();
  }

  std::vector<Communicator*> holders() const override { return {}; }

  void AddCosts(double /*forwards*/, CostPrediction& prediction) const override {
    prediction.memory = local_model_.Predict().memory;
    int64_t bytes = 0;  // what lies between the tensors included
    for (const Tensor& flat : flats_) bytes += flat.bytes();
    prediction.AddCollective(Operation::kAllReduce, "gradients", ranks_.size(),
                             static_cast<double>(bytes));
  }

 private:
  struct Use {
    Parameter* parameter;
    size_t bucket;
    int64_t ended = 0;  // shards of the step
  };

  std::vector<Parameter*> ParametersOf(const BlockRange& stage) const {
    std::vector<Parameter*> parameters;
    for (int64_t i = stage.begin; i < stage.end; ++i) {
      for (Parameter* use : local_model_.model().blocks[i]->Parameters()) parameters.push_back(use);
    }
    return parameters;
  }

  // A use has its gradient of a shard.
  void Ready(const Leaf& leaf, int64_t shard) {
    const auto found = uses_.find(&leaf);
    if (found == uses_.end() || found->second.ended != shard) return;
    Use& use = found->second;
    ++use.ended;
    if (local_model_.EndShard(*use.parameter) && --waiting_[use.bucket] == 0) LaunchComplete();
  }

  // Launches complete buckets, but never one before another that precedes it: all ranks must make
  // the same calls in the same order.
  void LaunchComplete() {
    while (next_ < flats_.size() && waiting_[next_] == 0) {
      const Tensor& flat = flats_[next_++];
      if (ranks_.size() == 1) continue;
      works_.push_back(ranks_.AllReduce(flat, flat, ReduceOp::kSum, "gradients"));
    }
  }

  Communicator& ranks_;  // with the same stages and other shards, or tokens, of the batch
  LocalModel local_model_;
  Buckets buckets_;
  std::vector<Tensor> flats_;  // by bucket
  std::unordered_map<const Leaf*, Use> uses_;
  std::vector<Work> works_;
  // How many uses each bucket still waits for in this step, and which bucket is launched next.
  std::vector<size_t> waiting_;
  size_t next_ = 0;
};

}  // namespace

DataParallelMaker MakeReplicated(const BucketLimits& limits) {
  return [limits](DataParallelInputs inputs) {
    return std::make_unique<Replicated>(std::move(inputs), limits);
  };
}

}  // namespace lockstep
