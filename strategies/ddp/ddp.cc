#include "strategies/ddp/ddp.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/base/status.h"
#include "core/train/config_reader.h"
#include "core/train/replica.h"
#include "core/train/updater.h"
#include "glog/logging.h"
#include "strategies/ddp/buckets.h"

namespace lockstep {
namespace {

struct Options {
  int64_t first_bucket_bytes = 1 << 20;
  int64_t bucket_bytes = 25 << 20;
};

absl::StatusOr<Options> ReadOptions(const Config& config) {
  Options options;
  ConfigReader reader(config.Table("ddp"));
  reader.Read("first_bucket_bytes", &options.first_bucket_bytes, {.at_least = 1});
  reader.Read("bucket_bytes", &options.bucket_bytes, {.at_least = 1});
  LS_RETURN_IF_ERROR(reader.Finish());
  return options;
}

// Sums the gradients of all ranks, bucket by bucket, while they are still being computed.
class GradientReducer {
 public:
  GradientReducer(Replica& replica, Communicator& ranks, Kernels& kernels, DType dtype,
                  const Options& options)
      : replica_(replica), ranks_(ranks) {
    std::vector<int64_t> bytes;
    for (const Parameter* parameter : replica.parameters()) {
      bytes.push_back(parameter->shape.elements() * SizeOf(dtype));
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

  // Of all buckets, what lies between their tensors included.
  int64_t bytes() const {
    int64_t sum = 0;
    for (const Tensor& flat : flats_) sum += flat.bytes();
    return sum;
  }

  // Before the backward that completes the step's gradients. Parameters without a use in it have
  // received all that they will.
  void Begin(const Tape& tape) {
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

  // A leaf has its gradient: a parameter, or one tied to it.
  void Ready(const Leaf& leaf) {
    const Owner& owner = owners_.at(&leaf);
    if (--uses_[owner.parameter] > 0) return;
    replica_.CompleteGradient(*owner.parameter);
    if (--waiting_[owner.bucket] == 0) LaunchComplete();
  }

  // Waits until all buckets hold the sum over the ranks.
  void Finish() {
    CHECK_EQ(next_, flats_.size()) << "backward ended with a bucket that is not complete";
    ThrowIfError(WaitAll(absl::MakeSpan(works_)));
    works_.clear();
  }

 private:
  struct Owner {
    Parameter* parameter;
    size_t bucket;
  };

  // Launches complete buckets, but never one before another that precedes it: all ranks must make
  // the same calls in the same order.
  void LaunchComplete() {
    while (next_ < flats_.size() && waiting_[next_] == 0) {
      works_.push_back(ranks_.AllReduce(flats_[next_], flats_[next_], ReduceOp::kSum, "gradients"));
      ++next_;
    }
  }

  Replica& replica_;
  Communicator& ranks_;
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

class Ddp : public Strategy {
 public:
  Ddp(StrategyInputs inputs, const Options& options)
      : ranks_(inputs.rank.mesh.dp()),
        batch_(inputs.settings.batch),
        replica_(inputs.rank, std::move(inputs.model), inputs.settings, inputs.targets_per_sample),
        reducer_(replica_, ranks_, inputs.rank.kernels, inputs.settings.precision.reduce, options),
        trained_(replica_.Trained()),
        updater_(inputs.rank, inputs.settings, trained_) {
    Broadcast();
  }

  MicroBatchRange micro_batches() const override {
    return {.first = ranks_.rank() * batch_.micro_batches, .count = batch_.micro_batches};
  }

  StepResult TrainStep(int64_t step, BatchSource& batches) override {
    replica_.Clear(updater_.loss_scale());
    const auto [first, count] = micro_batches();
    for (int64_t i = 0; i + 1 < count; ++i) {
      replica_.ForwardBackward(step, first + i, batches.Next());
    }
    // The last one completes the gradients, and reduces them as it does.
    replica_.ForwardBackward(step, first + count - 1, batches.Next(),
                             {.before = [this](const Tape& tape) { reducer_.Begin(tape); },
                              .leaf_ready = [this](Leaf& leaf) { reducer_.Ready(leaf); }});
    Work statistics = replica_.SumStatistics(ranks_);
    const double loss = replica_.SumLoss(ranks_);
    reducer_.Finish();
    ThrowIfError(statistics.Wait());
    StepResult result = updater_.Step(step, trained_);
    if (!result.skipped) replica_.UpdateStatistics();
    result.loss = loss;
    return result;
  }

  EvaluationSums Evaluate(const Batch& batch) override { return replica_.Evaluate(batch); }

  std::vector<StateTensor> State() override {
    std::vector<StateTensor> state = replica_.State();
    for (StateTensor& tensor : updater_.State(state)) state.push_back(std::move(tensor));
    for (StateTensor& tensor : state) tensor.is_writer = ranks_.rank() == 0;
    return state;
  }

  void Restored() override {
    replica_.RoundMasters();
    updater_.Restored();
  }

  CostPrediction Predict() const override {
    CostPrediction prediction = replica_.Predict();
    updater_.AddTo(prediction);
    // A ring all-reduce sends 2 (n - 1) / n of its bytes from each rank.
    const double n = ranks_.size(), share = 2 * (n - 1) / n;
    const auto gradients = static_cast<double>(reducer_.bytes());
    prediction.traffic.push_back({Operation::kAllReduce, "gradients", share * gradients});
    prediction.traffic.push_back({Operation::kAllReduce, "loss", share * sizeof(double)});
    if (replica_.statistics().defined()) {
      prediction.traffic.push_back({Operation::kAllReduce, "statistics",
                                    share * static_cast<double>(replica_.statistics().bytes())});
    }
    return prediction;
  }

 private:
  // Rank 0's initial values are everybody's.
  void Broadcast() {
    std::vector<Work> works;
    for (const StateTensor& tensor : replica_.State()) {
      works.push_back(ranks_.Broadcast(tensor.tensor, 0, "parameters"));
    }
    ThrowIfError(WaitAll(absl::MakeSpan(works)));
    replica_.RoundMasters();
  }

  Communicator& ranks_;
  const BatchSettings& batch_;
  Replica replica_;
  GradientReducer reducer_;
  std::vector<TrainedTensor> trained_;
  Updater updater_;
};

}  // namespace

StrategyDefinition DdpStrategy() {
  return {
      .name = "ddp",
      .axes = {MeshAxis::kDp},
      .check = [](const Config& config, const Settings&) { return ReadOptions(config).status(); },
      .make = [](StrategyInputs inputs) -> std::unique_ptr<Strategy> {
        const Options options = ReadOptions(inputs.config).value();
        return std::make_unique<Ddp>(std::move(inputs), options);
      }};
}

}  // namespace lockstep
