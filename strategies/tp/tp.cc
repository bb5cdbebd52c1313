#include "strategies/tp/tp.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/train/config_reader.h"
#include "core/train/norm_over_ranks.h"
#include "core/train/replica.h"
#include "core/train/updater.h"
#include "strategies/ddp/gradient_reducer.h"
#include "strategies/tp/replicated_gradients.h"
#include "strategies/tp/tensor_group.h"

namespace lockstep {
namespace {

struct Options {
  bool sequence_parallel = false;
};

absl::StatusOr<Options> ReadOptions(const Config& config) {
  Options options;
  ConfigReader reader(config.Table("tp"));
  reader.Read("sequence_parallel", &options.sequence_parallel);
  LS_RETURN_IF_ERROR(reader.Finish());
  return options;
}

absl::Status CheckModel(const Config& config, const Settings& settings, const Model& model) {
  LS_ASSIGN_OR_RETURN(const Options options, ReadOptions(config));
  if (options.sequence_parallel && !model.splits_sequence) {
    return absl::InvalidArgumentError(
        "tp.sequence_parallel is true, but this model has no sequence of tokens to divide; leave "
        "it out");
  }
  const absl::Status divides = model.CheckSplit(settings.mesh.tp);
  if (divides.ok()) return divides;
  return absl::InvalidArgumentError(absl::StrCat("mesh.tp is ", settings.mesh.tp, ", but ",
                                                 divides.message(),
                                                 "; change mesh.tp, or the sizes of [model]"));
}

Model SplitModel(Model model, SplitGroup& group) {
  if (group.size() > 1) model.Split(group);
  return model;
}

// Of the smallest batch that is passed through the model.
absl::Status CheckTokens(const Settings& settings, int64_t targets_per_sample) {
  const int64_t samples =
      std::min(settings.batch.smallest_micro_batch(), settings.validation.batch_size);
  const int64_t tokens = samples * targets_per_sample;
  if (tokens >= settings.mesh.tp) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "tp.sequence_parallel divides the tokens of a batch among mesh.tp = ", settings.mesh.tp,
      " ranks, but the smallest batch has ", tokens,
      "; use larger micro-batches and validation batches, or fewer ranks"));
}

class Tp : public Strategy {
 public:
  Tp(StrategyInputs inputs, const Options& options)
      : kernels_(inputs.rank.kernels),
        shards_(inputs.rank.mesh.dp()),
        ranks_(inputs.rank.mesh.tp()),
        settings_(inputs.settings),
        targets_per_sample_(inputs.targets_per_sample),
        group_(ranks_, options.sequence_parallel && ranks_.size() > 1
                           ? TensorGroup::Sequence::kSplit
                           : TensorGroup::Sequence::kWhole),
        replica_(inputs.rank, SplitModel(std::move(inputs.model), group_), inputs.settings,
                 inputs.targets_per_sample),
        trained_(Trained()),
        updater_(inputs.rank, inputs.settings, trained_) {
    if (group_.splits_sequence()) {
      ThrowIfError(CheckTokens(settings_, inputs.targets_per_sample));
    }
  }

  MicroBatchRange micro_batches() const override {
    return {.first = shards_.rank() * settings_.batch.micro_batches,
            .count = settings_.batch.micro_batches};
  }

  StepResult TrainStep(int64_t step, BatchSource& batches) override {
    replica_.Clear(updater_.loss_scale());
    const auto [first, count] = micro_batches();
    for (int64_t i = 0; i + 1 < count; ++i) {
      replica_.ForwardBackward(step, first + i, batches.Next());
    }
    const double loss = FinishGradients(step, first + count - 1, batches.Next());
    StepResult result = updater_.Step(
        step, trained_, ranks_.size() > 1 ? NormOverRanks(ranks_, kernels_) : NormReduction{});
    if (!result.skipped) replica_.UpdateStatistics();
    result.loss = loss;
    return result;
  }

  EvaluationSums Evaluate(const Batch& batch) override { return replica_.Evaluate(batch); }

  std::vector<StateTensor> State() override {
    std::vector<StateTensor> state = replica_.State();
    for (StateTensor& tensor : updater_.State(state)) state.push_back(std::move(tensor));
    for (StateTensor& tensor : state) {
      tensor.is_writer = shards_.rank() == 0 && (tensor.slice || ranks_.rank() == 0);
    }
    return state;
  }

  void Restored() override {
    replica_.RoundMasters();
    updater_.Restored();
  }

  CostPrediction Predict() const override {
    CostPrediction prediction = replica_.Predict();
    updater_.AddTo(prediction);
    if (ranks_.size() > 1) PredictTensorTraffic(prediction);
    if (shards_.size() > 1) PredictDataTraffic(prediction);
    return prediction;
  }

 private:
  // Gradients in memory, reduced over the shards where there are several, and which of them this
  // rank counts in their norm.
  std::vector<TrainedTensor> Trained() {
    const DType dtype = settings_.precision.reduce;
    if (shards_.size() > 1) {
      reducer_.emplace(replica_, shards_, dtype, BucketLimits{},
                       [this](Parameter& parameter) { replica_.CompleteGradient(parameter); });
    }
    replica_.AllocateGradients();
    if (group_.splits_sequence()) {
      replicated_.emplace(replica_.parameters(), dtype, ranks_, kernels_);
    }
    std::vector<TrainedTensor> trained = replica_.Trained();
    for (size_t i = 0; i < trained.size(); ++i) {
      trained[i].in_norm = ranks_.rank() == 0 || replica_.parameters()[i]->slice;
    }
    return trained;
  }

  // The last micro-batch of a step, and what the ranks sum then; returns the loss of all shards.
  double FinishGradients(int64_t step, int64_t micro_batch, const Batch& batch) {
    if (!reducer_) {
      replica_.ForwardBackward(step, micro_batch, batch);
      replica_.CompleteGradients();
      if (replicated_) replicated_->Sum();
      return replica_.loss();
    }
    replica_.ForwardBackward(step, micro_batch, batch, reducer_->hooks());
    Work statistics = replica_.SumStatistics(shards_);
    const double loss = replica_.SumLoss(shards_);
    reducer_->Finish();
    if (replicated_) replicated_->Sum();
    ThrowIfError(statistics.Wait());
    return loss;
  }

  // Theory: each layer of the plan moves its activations once in forward or backward; where the
  // sequence is split, once in both, for what was gathered on one way is scattered on the other.
  void PredictTensorTraffic(CostPrediction& prediction) const {
    const double samples =
        static_cast<double>(settings_.batch.size) / static_cast<double>(settings_.batch.shards);
    double forward = 0, backward = 0, logit_rows = 0;  // elements, rows
    for (const SplitTraffic& layer : replica_.model().split_traffic) {
      forward += samples * static_cast<double>(layer.forward);
      backward += samples * static_cast<double>(layer.backward);
      logit_rows += samples * static_cast<double>(layer.logit_rows);
    }
    const double n = ranks_.size(), share = 2 * (n - 1) / n;
    const auto size = static_cast<double>(SizeOf(settings_.precision.compute));
    const auto add = [&](Operation operation, const char* label, double bytes) {
      if (bytes > 0) prediction.traffic.push_back({operation, label, bytes});
    };
    if (!group_.splits_sequence()) {
      add(Operation::kAllReduce, "activations", share * forward * size);
      add(Operation::kAllReduce, "activation gradients", share * backward * size);
    } else {
      // Of all tokens this rank sends its own to each other rank, or the others' to them.
      const double own = OwnTokens();
      const double gather = own * (n - 1) * size, scatter = (1 - own) * size;
      add(Operation::kAllGather, "activations", gather * backward);
      add(Operation::kReduceScatter, "activations", scatter * forward);
      add(Operation::kAllGather, "activation gradients", gather * forward);
      add(Operation::kReduceScatter, "activation gradients", scatter * backward);
      add(Operation::kAllReduce, "replicated gradients",
          share * static_cast<double>(replicated_->bytes()));
    }
    add(Operation::kAllReduce, "cross entropy", share * 3 * sizeof(float) * logit_rows);
    add(Operation::kAllReduce, "norm", share * kNormBytes);
  }

  // Which part of a shard's tokens is this rank's, where each micro-batch is divided.
  double OwnTokens() const {
    int64_t own = 0;
    for (int64_t i = 0; i < settings_.batch.micro_batches; ++i) {
      own += group_.Tokens(settings_.batch.samples_of(i) * targets_per_sample_).count;
    }
    return static_cast<double>(own) /
           static_cast<double>(settings_.batch.samples_of_shard() * targets_per_sample_);
  }

  void PredictDataTraffic(CostPrediction& prediction) const {
    const double n = shards_.size(), share = 2 * (n - 1) / n;
    const auto add = [&](const char* label, double bytes) {
      prediction.traffic.push_back({Operation::kAllReduce, label, share * bytes});
    };
    add("gradients", static_cast<double>(reducer_->bytes()));
    add("loss", sizeof(double));
    if (replica_.statistics().defined()) {
      add("statistics", static_cast<double>(replica_.statistics().bytes()));
    }
  }

  Kernels& kernels_;
  Communicator& shards_;  // with the same slices, and other micro-batches
  Communicator& ranks_;   // with the same micro-batches, and other slices
  const Settings& settings_;
  const int64_t targets_per_sample_;
  TensorGroup group_;
  Replica replica_;
  std::optional<GradientReducer> reducer_;         // none: one shard
  std::optional<ReplicatedGradients> replicated_;  // none: every rank meets all tokens
  std::vector<TrainedTensor> trained_;
  Updater updater_;
};

}  // namespace

StrategyDefinition TpStrategy() {
  return {
      .name = "tp",
      .axes = {MeshAxis::kDp, MeshAxis::kTp},
      .check = [](const Config& config, const Settings&) { return ReadOptions(config).status(); },
      .check_model = CheckModel,
      .make = [](StrategyInputs inputs) -> std::unique_ptr<Strategy> {
        const Options options = ReadOptions(inputs.config).value();
        return std::make_unique<Tp>(std::move(inputs), options);
      }};
}

}  // namespace lockstep
