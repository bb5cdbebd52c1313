#include "core/run/strategy/local_model.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/comm/host_numbers.h"
#include "core/layout/model_tensors.h"
#include "core/nn/loss.h"
#include "core/nn/split.h"
#include "core/report/trace.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// Elements from one aligned view of a flat fp32 buffer to the next.
int64_t AlignedElements(int64_t elements) { return AlignedBytes(elements * 4) / 4; }

// Lays the layers' sums out in one buffer, so that one collective combines them all.
Tensor FlattenStatistics(Kernels& kernels, const std::vector<RunningStatistics*>& layers) {
  if (layers.empty()) return Tensor();
  for (RunningStatistics* layer : layers) layer->sums = Tensor();  // two of each at no time
  Tensor flat = kernels.Empty({StatisticsElements(layers)}, DType::kF32, MemoryClass::kParameters);
  kernels.Fill(flat, 0);
  int64_t offset = 0;
  for (RunningStatistics* layer : layers) {
    layer->sums = flat.View(offset, {3, layer->held_channels()});
    offset += AlignedElements(3 * layer->held_channels());
  }
  return flat;
}

ModelLayout LayoutOf(const Model& model, const Rank& rank, const std::vector<BlockRange>& ranges,
                     const Precision& precision) {
  return {TensorsOf(model),
          {.mesh = {.dp = rank.mesh.data().size()},
           .blocks = {ranges},
           .compute = precision.compute,
           .reduce = precision.reduce}};
}

// Draws forward and backward of a block into the trace, inside those of the pass.
void TraceBlock(Block& block, Trace& trace) {
  const auto start = std::make_shared<int64_t>();
  const auto begin = [start] { *start = NowNanos(); };
  const auto end = [start, &trace, name = block.name()](const char* direction) {
    if (!trace.enabled()) return;
    trace.Add({.name = absl::StrCat(name, " ", direction),
               .start_nanos = *start,
               .duration_nanos = NowNanos() - *start});
  };
  block.AddHooks({.before_forward = [begin](Pass&) { begin(); },
                  .after_forward = [end](Pass&) { end("forward"); },
                  .before_backward = begin,
                  .after_backward = [end] { end("backward"); }});
}

}  // namespace

int64_t StatisticsElements(const std::vector<RunningStatistics*>& layers) {
  int64_t elements = 0;
  for (const RunningStatistics* layer : layers) {
    elements += AlignedElements(3 * layer->held_channels());
  }
  return elements;
}

void CompleteGradient(Kernels& kernels, Parameter& parameter) {
  const int64_t features = parameter.feature_leaves;
  const int64_t sources = parameter.shard_sources;
  const int64_t tokens = parameter.accumulators() / features / sources;
  if (!parameter.has_gradient()) {
    for (int64_t leaf = 0; leaf < parameter.accumulators(); ++leaf) {
      kernels.Fill(parameter.NextContributionOf(leaf, kernels).tensor, -0.0f);
    }
  }
  for (int64_t token = 0; token < sources * tokens; ++token) {
    const Tensor sum = parameter.SumAccumulators(kernels, token * features, features, 1);
    if (parameter.features_over != nullptr) parameter.features_over->SumGradient(sum);
  }
  for (int64_t source = 0; source < sources; ++source) {
    const Tensor sum =
        parameter.SumAccumulators(kernels, source * tokens * features, tokens, features);
    for (GradientGroup* group : {parameter.tokens_over, parameter.context_over}) {
      if (group != nullptr) group->SumGradient(sum);
    }
  }
}

SkipEnds SkipEndsOf(const Model& model, const BlockRange& blocks) {
  SkipEnds ends;
  for (const SkipPath& path : SkipPaths(model.blocks)) {
    const bool begins = blocks.Contains(path.from), ends_here = blocks.Contains(path.to);
    if (ends_here && !begins) ends.in.push_back(path);
    if (begins && !ends_here) ends.out.push_back(path);
  }
  return ends;
}

LocalModel::LocalModel(Rank& rank, Model&& model, const std::vector<BlockRange>& ranges,
                       const Settings& settings, int64_t targets_per_sample)
    : LocalModel(rank, std::move(model), LayoutOf(model, rank, ranges, settings.precision),
                 rank.mesh.data().rank(), settings, targets_per_sample) {}

LocalModel::LocalModel(Rank& rank, Model&& model, ModelLayout layout, int place,
                       const Settings& settings, int64_t targets_per_sample,
                       const ValueMaker& make_values)
    : rank_(rank),
      model_(std::move(model)),
      layout_(std::move(layout)),
      place_(place),
      ranges_(layout_.blocks(place)),
      settings_(settings),
      targets_per_sample_(targets_per_sample),
      target_count_(static_cast<double>(settings.batch.size * targets_per_sample)) {
  CHECK(!ranges_.empty());
  BlockRange& last = ranges_.back();
  last.end = std::min<int64_t>(last.end, std::ssize(model_.blocks));
  ListParameters();
  if (make_values) {
    make_values(model_, layout_, place_);
  } else {
    MakeValues();
  }
  MakeAccumulators();
  std::vector<RunningStatistics*> frozen_layers;
  for (Block* block : OwnBlocks()) {
    for (RunningStatistics* layer : block->Statistics()) {
      (layer->frozen ? frozen_layers : layers_).push_back(layer);
    }
    // Behind what a strategy has hung on it: its waits are not the block's.
    TraceBlock(*block, rank.trace);
  }
  Materialize(layers_, rank.kernels);
  Materialize(frozen_layers, rank.kernels);
  for (RunningStatistics* layer : layers_) {
    if (MovesOf(*layer) == Moves::kEachStep) step_layers_.push_back(layer);
  }
  statistics_ = FlattenStatistics(rank.kernels, step_layers_);
}

std::vector<Block*> LocalModel::OwnBlocks() const {
  std::vector<Block*> blocks;
  for (const BlockRange& range : ranges_) {
    for (int64_t i = range.begin; i < range.end; ++i) blocks.push_back(model_.blocks[i].get());
  }
  return blocks;
}

void LocalModel::ListParameters() {
  const std::vector<Parameter*> parameters = model_.Parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    Parameter* parameter = parameters[i];
    const std::optional<size_t> owner = layout_.tensors()[i].tied_to;
    const bool is_here = layout_.Has(place_, i), has_owner = layout_.Has(place_, owner.value_or(i));
    if (!owner) owners_.push_back({parameter, is_here, Tensor()});
    if (!owner && is_here && parameter->trainable) parameters_.push_back(parameter);
    if (is_here && !has_owner) tied_copies_.push_back(parameter);
    if (parameter->trainable && is_here) {
      parameter->gradient_dtype = settings_.precision.reduce;
      uses_.push_back(parameter);
    }
  }
}

void LocalModel::MakeValues() {
  const Precision& precision = settings_.precision;
  for (Owner& owner : owners_) {
    if (!owner.is_here) continue;
    Parameter& parameter = *owner.parameter;
    owner.master = parameter.value =
        Draw(parameter, parameter.trainable ? DType::kF32 : precision.compute);
    if (!parameter.trainable || !precision.has_masters()) continue;
    owner.master.storage().Rebook(MemoryClass::kOptimizerState);
    parameter.value =
        rank_.kernels.Empty(parameter.held_shape(), precision.compute, MemoryClass::kParameters);
  }
  for (Parameter* parameter : model_.Parameters()) {
    if (parameter->tied_to != nullptr) parameter->value = parameter->tied_to->value;
  }
  for (Parameter* copy : tied_copies_) copy->value = Draw(*copy, precision.compute);
  RoundMasters();
}

// What micro-batches contribute to a token leaf is a chain, and what ranks have of a token leaf by
// their features is summed over them before the next one is added: both end with the shard. What
// comes from ranks of other shards ends with these.
void LocalModel::MakeAccumulators() {
  for (Parameter* use : uses_) {
    const int ranks = use->tokens_over == nullptr ? 1 : use->tokens_over->size();
    const int64_t tokens = Tokens(1).held_leaves() / ranks;
    const bool token_leaves_wait = settings_.cut.micro_batches > 1 || use->feature_leaves > 1 ||
                                   use->features_over != nullptr || use->shard_sources > 1;
    const int64_t of_tokens = tokens * use->token_sources * use->shard_sources;
    use->MakeAccumulators(rank_.kernels, (token_leaves_wait ? of_tokens : 1) * use->feature_leaves);
  }
}

// Initial values.
Tensor LocalModel::Draw(const Parameter& parameter, DType dtype) const {
  Kernels& kernels = rank_.kernels;
  const Tensor drawn = kernels.Empty(parameter.held_shape(), dtype, MemoryClass::kParameters);
  Initialize(parameter, settings_.seed, 0, kernels, drawn);
  return drawn;
}

void LocalModel::RoundMasters() {
  if (!settings_.precision.has_masters()) return;
  for (const Owner& owner : owners_) {
    if (!owner.is_here || !owner.parameter->trainable) continue;
    rank_.kernels.Cast(owner.master, owner.parameter->value);
  }
}

void LocalModel::AllocateGradients() {
  for (Parameter* use : uses_) {
    if (!use->gradient.defined()) {
      use->gradient =
          rank_.kernels.Empty(use->held_shape(), use->gradient_dtype, MemoryClass::kGradients);
    }
    const int64_t of_source = use->accumulators() / use->shard_sources;
    for (int source = 0; source < use->shard_sources; ++source) {
      gradient_sums_[use].emplace_back(rank_.kernels, use->AccumulatorOf(source * of_source),
                                       settings_.shards_of_rank(), MemoryClass::kGradients);
    }
  }
}

void LocalModel::Clear(double loss_scale) {
  for (Parameter* use : uses_) use->ClearGradient();
  for (RunningStatistics* layer : layers_) layer->Clear();
  losses_.clear();
  loss_scale_ = loss_scale;
}

Variables LocalModel::Enter(const Tensor& inputs) {
  const DType dtype = settings_.precision.compute;
  if (!IsFloating(inputs.dtype()) || inputs.dtype() == dtype) return {Variable(inputs)};
  const Tensor cast = rank_.kernels.Empty(inputs.shape(), dtype);
  rank_.kernels.Cast(inputs, cast);
  return {Variable(cast)};
}

void LocalModel::CountTargets(const Batch& batch) {
  if (batch.documents.defined()) {
    // Where no token has a target, every loss is 0.
    target_count_ = static_cast<double>(std::max<int64_t>(1, batch.targets_of_step));
  }
}

std::optional<LossInRuns> LocalModel::RunsOfLoss(const Tensor& targets) const {
  if (loss_rows() == 0) return std::nullopt;
  return LossInRuns{.rows = loss_rows(), .targets = targets, .factor = loss_factor()};
}

CrossEntropy LocalModel::Loss(Pass& pass, Variable outputs, const Tensor& targets) {
  if (pass.loss_in_runs != nullptr) return StartFromLosses(pass, outputs);
  return SoftmaxCrossEntropy(pass, std::move(outputs), targets, loss_factor());
}

void LocalModel::AddLoss(const CrossEntropy& result) {
  // Kept for the end of the step, behind all activations.
  losses_.push_back(result.losses);
  losses_.back().storage().Rebook(MemoryClass::kWorkspace);
}

double LocalModel::MeanLoss(Communicator* ranks) {
  ExactSum sum;
  if (!losses_.empty()) sum.Add(rank_.kernels.SumOfAll(losses_));
  losses_.clear();
  if (ranks != nullptr) {
    if (rank_.search != nullptr) rank_.search->ObserveNumbersHandedOver("the loss", sum.bins());
    ThrowIfError(AllReduceNumbers(*ranks, absl::MakeSpan(sum.bins()), ReduceOp::kSum, "loss"));
  }
  return sum.Total() / target_count_;
}

bool LocalModel::EndShard(Parameter& use) {
  CompleteGradient(rank_.kernels, use);
  if (RunProbe* probe = RunProbeOf(rank_)) probe->ShardGradient(use);
  if (rank_.search != nullptr && use.padding == 0) {  // which has no defined bits
    rank_.search->ObserveGradient(use.name, use.gradient);
  }
  bool is_complete = true;
  const auto sums = gradient_sums_.find(&use);
  const bool has_sums = sums != gradient_sums_.end();
  if (has_sums) {
    for (ShardSum& sum : sums->second) is_complete = sum.Add();
  }
  if (is_complete && use.shard_sources > 1) {
    use.SumAccumulators(rank_.kernels, 0, use.shard_sources,
                        use.accumulators() / use.shard_sources);
  }
  if (!is_complete || !has_sums) use.ClearGradient();
  return is_complete;
}

void LocalModel::HandOver(const std::string& what, const Tensor& part) const {
  if (rank_.search != nullptr) rank_.search->ObserveHandedOver(what, part);
}

void LocalModel::HandOverGradient(const Parameter& use, const Tensor& held) const {
  if (rank_.search == nullptr || held.elements() == 0) return;
  if (use.padding != 0) return;  // which has no defined bits
  HandOver(absl::StrCat("the gradient of '", use.name, "'"), held);
}

LocalModel::Moves LocalModel::MovesOf(const RunningStatistics& layer) const {
  const bool waits = settings_.deferred_batch_norm || !layer.can_follow_micro_batches();
  return waits ? Moves::kEachStep : Moves::kEachMicroBatch;
}

std::vector<RunningStatistics*> LocalModel::StatisticsOf(const BlockRange& blocks,
                                                         Moves moves) const {
  std::vector<RunningStatistics*> layers;
  for (int64_t i = blocks.begin; i < blocks.end; ++i) {
    for (RunningStatistics* layer : model_.blocks[i]->Statistics()) {
      if (!layer->frozen && MovesOf(*layer) == moves) layers.push_back(layer);
    }
  }
  return layers;
}

std::vector<TrainedTensor> LocalModel::Trained(const TrainedByName& made) const {
  const Precision& precision = settings_.precision;
  std::vector<TrainedTensor> trained;
  for (const Owner& owner : owners_) {
    const Parameter& parameter = *owner.parameter;
    if (!parameter.trainable) continue;
    if (const auto found = made.find(parameter.name); found != made.end()) {
      trained.push_back(found->second);
      continue;
    }
    const auto here = [&](const Tensor& tensor, DType dtype) {
      return owner.is_here ? tensor : rank_.kernels.Empty({0}, dtype, MemoryClass::kParameters);
    };
    trained.push_back(
        {.name = parameter.name,
         .value = here(owner.master, DType::kF32),
         .gradient = here(parameter.gradient, precision.reduce),
         .decays = parameter.decays(),
         .copy = precision.has_masters() ? here(parameter.value, precision.compute) : Tensor()});
  }
  return trained;
}

void LocalModel::UpdateStatistics() {
  const double weight = static_cast<double>(settings_.batch.size) /
                        static_cast<double>(settings_.largest_micro_batch());
  for (RunningStatistics* layer : step_layers_) layer->Update(rank_.kernels, weight);
}

std::vector<StateTensor> LocalModel::State(NamedTensors values) const {
  for (const Owner& owner : owners_) {
    if (owner.is_here && owner.master.defined()) values[owner.parameter->name] = owner.master;
  }
  AddStatistics(model_, values);
  return StateOf(layout_.Of(place_), values, rank_.allocator());
}

CostPrediction LocalModel::Predict() const {
  const ModelLayout::KeptBytes kept =
      layout_.Kept(place_, static_cast<int64_t>(StateNames(settings_.optimizer.rule).size()));
  CostPrediction prediction;
  prediction.memory = {{MemoryClass::kParameters, kept.parameters},
                       {MemoryClass::kGradients, kept.gradients},
                       {MemoryClass::kOptimizerState, kept.optimizer_state}};
  for (const auto& [use, sums] : gradient_sums_) {
    for (const ShardSum& sum : sums) prediction.AddMemory(MemoryClass::kGradients, sum.bytes());
  }
  for (const Parameter* use : uses_) {
    prediction.AddMemory(MemoryClass::kGradients, use->accumulator_bytes());
  }
  return prediction;
}

}  // namespace lockstep
