#include "strategies/data_parallel/replicated.h"

#include <utility>

namespace lockstep {
namespace {

class Replicated : public DataParallel {
 public:
  Replicated(DataParallelInputs inputs, const BucketLimits& buckets)
      : ranks_(inputs.rank.mesh.data()),
        stage_(inputs.rank, std::move(inputs.model), inputs.MakeLayout(Divided::kNothing),
               inputs.rank.rank, inputs.settings, inputs.targets_per_sample),
        reducer_(stage_, ranks_, inputs.settings.precision.reduce, buckets,
                 [this, await = std::move(inputs.await_tied)](Parameter& parameter) {
                   await(parameter);
                   stage_.CompleteGradient(parameter);
                 }) {}

  Stage& stage() override { return stage_; }
  const Stage& stage() const override { return stage_; }

  Tensor ValuesOf(const Parameter& parameter) const override { return parameter.value; }
  std::vector<TrainedTensor> Trained() const override { return stage_.Trained(); }
  std::vector<StateTensor> State() const override { return stage_.State(); }

  void RoundMasters() override { stage_.RoundMasters(); }
  void ShareValues() override {}
  void ShareUpdates() override {}

  void BeginStep(double loss_scale) override { stage_.Clear(loss_scale); }
  BackwardHooks Completing(const BlockRange& stage) override { return reducer_.hooks(stage); }
  void Completed(const BlockRange& /*stage*/) override {}
  void FinishGradients() override { reducer_.Finish(); }

  std::vector<Communicator*> holders() const override { return {}; }

  void AddCosts(double /*forwards*/, CostPrediction& prediction) const override {
    prediction.memory = stage_.Predict().memory;
    prediction.AddCollective(Operation::kAllReduce, "gradients", ranks_.size(),
                             static_cast<double>(reducer_.bytes()));
  }

 private:
  Communicator& ranks_;  // with the same stages and other shards of the batch
  Stage stage_;
  GradientReducer reducer_;
};

}  // namespace

DataParallelMaker MakeReplicated(const BucketLimits& buckets) {
  return [buckets](DataParallelInputs inputs) {
    return std::make_unique<Replicated>(std::move(inputs), buckets);
  };
}

}  // namespace lockstep
