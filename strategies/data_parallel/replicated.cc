#include "strategies/data_parallel/replicated.h"

#include <utility>

namespace lockstep {
namespace {

class Replicated : public DataParallel {
 public:
  Replicated(DataParallelInputs inputs, const BucketLimits& buckets)
      : ranks_(inputs.rank.mesh.data()),
        local_model_(inputs.rank, std::move(inputs.model), inputs.MakeLayout(Divided::kNothing),
                     inputs.rank.rank, inputs.settings, inputs.targets_per_sample),
        reducer_(local_model_, ranks_, inputs.settings.precision.reduce, buckets) {}

  LocalModel& local_model() override { return local_model_; }
  const LocalModel& local_model() const override { return local_model_; }

  Tensor ValuesOf(const Parameter& parameter) const override { return parameter.value; }
  Tensor GradientOf(const Parameter& use) const override { return use.gradient; }
  std::vector<TrainedTensor> Trained() const override { return local_model_.Trained(); }
  std::vector<StateTensor> State() const override { return local_model_.State(); }

  void RoundMasters() override { local_model_.RoundMasters(); }
  void ShareValues() override {}
  void ShareUpdates() override {}

  void BeginStep(double loss_scale) override { local_model_.Clear(loss_scale); }
  BackwardHooks Completing(const BlockRange& stage, int64_t shard) override {
    return reducer_.Completing(stage, shard);
  }
  void Completed(const BlockRange& stage, int64_t shard) override {
    reducer_.Completed(stage, shard);
  }
  void FinishGradients() override { reducer_.Finish(); }

  std::vector<Communicator*> holders() const override { return {}; }

  void AddCosts(double /*forwards*/, CostPrediction& prediction) const override {
    prediction.memory = local_model_.Predict().memory;
    prediction.AddCollective(Operation::kAllReduce, "gradients", ranks_.size(),
                             static_cast<double>(reducer_.bytes()));
  }

 private:
  Communicator& ranks_;  // with the same stages and other shards of the batch
  LocalModel local_model_;
  GradientReducer reducer_;
};

}  // namespace

DataParallelMaker MakeReplicated(const BucketLimits& buckets) {
  return [buckets](DataParallelInputs inputs) {
    return std::make_unique<Replicated>(std::move(inputs), buckets);
  };
}

}  // namespace lockstep
