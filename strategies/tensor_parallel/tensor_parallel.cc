#include "strategies/tensor_parallel/tensor_parallel.h"

#include "core/base/status.h"
#include "core/config/config_reader.h"
#include "strategies/recompute/forwards_again.h"

namespace lockstep {
namespace {

absl::StatusOr<bool> ReadSequenceParallel(const Config& config) {
  bool sequence_parallel = false;
  ConfigReader reader(config.Table(kTensorParallelTable));
  reader.Read("sequence_parallel", &sequence_parallel);
  LS_RETURN_IF_ERROR(reader.Finish());
  return sequence_parallel;
}

TensorGroup::Sequence SequenceOf(const StrategyInputs& inputs) {
  return ReadSequenceParallel(inputs.config).value() && inputs.settings.mesh.tp > 1
             ? TensorGroup::Sequence::kSplit
             : TensorGroup::Sequence::kWhole;
}

// What the split layers of a local model move for a sample, in elements.
struct StageTraffic {
  int64_t forward = 0;        // sums on the way out
  int64_t forward_back = 0;   // those that gradients come back through
  int64_t backward = 0;       // gathers on the way in, of a split sequence
  int64_t backward_back = 0;  // sums of gradients on the way back
  int64_t logit_rows = 0;
};
// `forwards`: how often the local model runs the sample forward.
StageTraffic TrafficPerSample(const LocalModel& local_model, int forwards) {
  const Model& model = local_model.model();
  StageTraffic sum;
  for (const SplitTraffic& layer : model.split_traffic) {
    const GradientNeeds needs = NeedsOf(model, layer.layer);
    for (const BlockRange& blocks : local_model.ranges()) {
      for (int64_t i = blocks.begin; i < blocks.end; ++i) {
        if (!IsIn(*model.blocks[i], layer.layer)) continue;
        const int again = ForwardsAgain(model, *model.blocks[i], layer.operation);
        const int all_forwards = forwards + again;
        sum.forward += all_forwards * layer.forward;
        sum.backward += all_forwards * layer.backward;
        if (needs.of_output) sum.forward_back += layer.forward;
        if (needs.of_input) sum.backward_back += layer.backward;
        // Losses lie behind the blocks, but in the last block where they are made in runs.
        sum.logit_rows += (local_model.loss_rows() > 0 ? 1 + again : 1) * layer.logit_rows;
      }
    }
  }
  return sum;
}

}  // namespace

absl::Status CheckTensorParallelOptions(const Config& config) {
  return ReadSequenceParallel(config).status();
}

absl::Status CheckTensorParallelModel(const Config& config, const Settings& settings,
                                      const Model& model) {
  LS_ASSIGN_OR_RETURN(const bool sequence_parallel, ReadSequenceParallel(config));
  if (sequence_parallel && !model.splits_sequence) {
    return absl::InvalidArgumentError(
        "tensor_parallel.sequence_parallel is true, but this model has no sequence of tokens to "
        "divide; leave it out");
  }
  const absl::Status divides = model.CheckSplit(settings.mesh.tp);
  if (divides.ok()) return divides;
  return InvalidArgument("mesh.tp is ", settings.mesh.tp, ", but ", divides.message(),
                         "; change mesh.tp, or the sizes of [model]");
}

TensorParallel::TensorParallel(const StrategyInputs& inputs)
    : ranks_(inputs.rank.mesh.tp()),
      settings_(inputs.settings),
      group_(ranks_, SequenceOf(inputs)) {}

Model TensorParallel::Split(Model model) {
  if (ranks_.size() == 1) return model;
  model.Split(group_);
  for (const Parameter* parameter : model.Parameters()) {
    if (parameter->slice) split_.insert(parameter->name);
  }
  return model;
}

std::vector<TrainedTensor> TensorParallel::Prepare(std::vector<TrainedTensor> trained) const {
  for (TrainedTensor& tensor : trained) {
    if (!split_.contains(tensor.name)) tensor.in_norm = ranks_.rank() == 0;
  }
  return trained;
}

// Theory: each layer of the plan moves its activations once in forward or backward; where the
// sequence is split, once in both, for what was gathered on one way is scattered on the other.
void TensorParallel::AddTraffic(const LocalModel& local_model, int micro_batches,
                                Checkpointing checkpointing, CostPrediction& prediction) const {
  if (ranks_.size() == 1) return;
  const double n = ranks_.size(), fraction = 2 * (n - 1) / n;
  // Bytes of a run, by collective: of activations, and of their gradients.
  struct {
    double sums = 0, gathers = 0, scatters = 0;
  } forward, back;
  double logit_sums = 0;
  int64_t routed = 0;  // experts, by router and forward pass
  for (int i = 0; i < micro_batches; ++i) {
    const int forwards = Forwards(i, micro_batches, checkpointing);
    const StageTraffic sample = TrafficPerSample(local_model, forwards);
    routed += RoutedExperts(local_model, forwards);
    // Along cp each rank has its tokens of a sample.
    const auto samples = static_cast<double>(settings_.samples_of(i)) / settings_.mesh.cp;
    const double bytes = samples * static_cast<double>(SizeOf(settings_.precision.compute));
    forward.sums += fraction * bytes * static_cast<double>(sample.forward);
    back.sums += fraction * bytes * static_cast<double>(sample.backward_back);
    logit_sums += fraction * 3 * sizeof(float) * samples * static_cast<double>(sample.logit_rows);
    if (!group_.splits_sequence()) continue;
    // This rank sends its own tokens to each other rank, or the others' to them.
    const double others = (n - 1) / n;
    forward.gathers += others * bytes * static_cast<double>(sample.backward);
    forward.scatters += others * bytes * static_cast<double>(sample.forward);
    back.gathers += others * bytes * static_cast<double>(sample.forward_back);
    back.scatters += others * bytes * static_cast<double>(sample.backward_back);
  }
  const double runs = static_cast<double>(settings_.micro_batches_of_rank()) / micro_batches;
  const auto add = [&](Operation operation, const char* label, double bytes) {
    if (bytes > 0) prediction.AddTraffic(operation, label, runs * bytes);
  };
  if (!group_.splits_sequence()) {
    add(Operation::kAllReduce, "activations", forward.sums);
    add(Operation::kAllReduce, "activation gradients", back.sums);
  } else {
    add(Operation::kAllGather, "activations", forward.gathers);
    add(Operation::kReduceScatter, "activations", forward.scatters);
    add(Operation::kAllGather, "activation gradients", back.gathers);
    add(Operation::kReduceScatter, "activation gradients", back.scatters);
    // Each rank counts the rows of its own token leaves for each expert.
    const int64_t leaves = settings_.cut.tokens / settings_.mesh.cp;
    add(Operation::kAllGather, kRoutedRows,
        (n - 1) / n * static_cast<double>(routed * leaves) * sizeof(int64_t));
  }
  add(Operation::kAllReduce, "cross entropy", logit_sums);
  int64_t replicated = 0;  // parts of gradients, once for each shard or each of its token leaves
  for (const Parameter* use : local_model.uses()) {
    // Factors of experts have parts for the token leaves of other ranks, too.
    const int64_t leaves =
        settings_.cut.tokens / settings_.mesh.cp * use->token_sources * use->shard_sources;
    const int64_t parts =
        (use->features_over != nullptr ? leaves : 0) + (use->tokens_over != nullptr ? 1 : 0);
    replicated += parts * settings_.shards_of_rank() * use->held_shape().elements() *
                  SizeOf(settings_.precision.reduce);
  }
  if (replicated > 0) {
    prediction.AddTraffic(Operation::kAllReduce, kReplicatedGradients,
                          fraction * static_cast<double>(replicated));
  }
}

}  // namespace lockstep
