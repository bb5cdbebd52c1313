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

// Buckets of a local model's gradients, and the ranks that sum them.
class BucketSums {
 public:
  // The model outlives it.
  BucketSums(Communicator& ranks, const LocalModel& local_model, std::vector<Parameter*> uses,
             DType dtype, const BucketLimits& limits)
      : ranks_(ranks), local_model_(local_model), uses_(std::move(uses)) {
    std::vector<int64_t> bytes;
    for (const Parameter* use : uses_) {
      bytes.push_back(use->held_shape().elements() * SizeOf(dtype));
    }
    buckets_ = PlanBuckets(bytes, limits.first, limits.others);
    flats_ = MakeBuckets(buckets_, uses_, dtype, local_model.rank().kernels);
    for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
      for (const size_t i : buckets_[bucket]) bucket_of_[uses_[i]] = bucket;
    }
  }

  void BeginStep() {
    next_ = 0;
    waiting_.clear();
    for (const std::vector<size_t>& bucket : buckets_) waiting_.push_back(bucket.size());
  }
  // A use has its gradient of all of the rank's shards.
  void Complete(const Parameter& use) {
    if (--waiting_[bucket_of_.at(&use)] == 0) LaunchComplete();
  }
  // Returns when all sums are there. Throws StatusException.
  void Finish() {
    CHECK_EQ(next_, flats_.size());
    ThrowIfError(WaitAll(absl::MakeSpan(works_)));
    works_.clear();
  }
  void AddTraffic(CostPrediction& prediction) const {
    int64_t bytes = 0;  // what lies between the tensors included
    for (const Tensor& flat : flats_) bytes += flat.bytes();
    prediction.AddCollective(Operation::kAllReduce, "gradients", ranks_.size(),
                             static_cast<double>(bytes));
  }

 private:
  // Launches complete buckets, but never one before another that precedes it: all ranks must make
  // the same calls in the same order.
  void LaunchComplete() {
    while (next_ < flats_.size() && waiting_[next_] == 0) {
      const size_t bucket = next_++;
      if (ranks_.size() == 1) continue;
      for (const size_t i : buckets_[bucket]) {
        local_model_.HandOverGradient(*uses_[i], uses_[i]->gradient);
      }
      const Tensor& flat = flats_[bucket];
      works_.push_back(ranks_.AllReduce(flat, flat, ReduceOp::kSum, "gradients"));
    }
  }

  Communicator& ranks_;
  const LocalModel& local_model_;
  const std::vector<Parameter*> uses_;
  Buckets buckets_;
  std::vector<Tensor> flats_;  // by bucket
  std::unordered_map<const Parameter*, size_t> bucket_of_;
  std::vector<Work> works_;
  // How many uses each bucket still waits for in this step, and which bucket is launched next.
  std::vector<size_t> waiting_;
  size_t next_ = 0;
};

class Replicated : public DataParallel {
 public:
  Replicated(DataParallelInputs inputs, const BucketLimits& limits)
      : local_model_(inputs.rank, std::move(inputs.model), inputs.MakeLayout(Divided::kNothing),
                     inputs.rank.rank, inputs.settings, inputs.targets_per_sample) {
    const Mesh& mesh = inputs.rank.mesh;
    const bool has_experts = mesh.shape().ep > 1;
    std::vector<Parameter*> shared, experts;
    for (Parameter* use : local_model_.uses()) {
      (has_experts && use->is_of_experts ? experts : shared).push_back(use);
    }
    const auto add = [&](Communicator& ranks, const std::vector<Parameter*>& uses) {
      sums_.push_back(std::make_unique<BucketSums>(ranks, local_model_, uses,
                                                   inputs.settings.precision.reduce, limits));
      for (Parameter* use : uses) uses_[use] = {use, sums_.back().get()};
    };
    add(inputs.sums_tokens ? mesh.batch() : mesh.data(), shared);
    if (has_experts) {
      // Ranks along cp have summed the tokens of a shard already, or those with the same experts
      // have the same place along cp.
      const bool is_summed = !inputs.sums_tokens && mesh.shape().ep < mesh.shape().cp;
      add(is_summed ? mesh.data() : mesh.expert_batch(), experts);
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
    for (const auto& sums : sums_) sums->BeginStep();
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
    for (const auto& sums : sums_) sums->Finish();
  }

  std::vector<Communicator*> holders() const override { return {}; }

  void AddCosts(double /*forwards*/, CostPrediction& prediction) const override {
    prediction.memory = local_model_.Predict().memory;
    for (const auto& sums : sums_) sums->AddTraffic(prediction);
  }

 private:
  struct Use {
    Parameter* parameter;
    BucketSums* sums;
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
    if (local_model_.EndShard(*use.parameter)) use.sums->Complete(*use.parameter);
  }

  LocalModel local_model_;
  // One sums what all ranks hold that train other shards, or other tokens, of the batch; another
  // one sums the experts, which fewer ranks hold.
  std::vector<std::unique_ptr<BucketSums>> sums_;
  std::unordered_map<const Leaf*, Use> uses_;
};

}  // namespace

DataParallelMaker MakeReplicated(const BucketLimits& limits) {
  return [limits](DataParallelInputs inputs) {
    return std::make_unique<Replicated>(std::move(inputs), limits);
  };
}

}  // namespace lockstep
