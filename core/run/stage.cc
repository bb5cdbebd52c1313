#include "core/run/stage.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/comm/host_numbers.h"
#include "core/nn/loss.h"
#include "core/report/trace.h"
#include "core/run/model_weights.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// Elements from one aligned view of a flat fp32 buffer to the next.
int64_t AlignedElements(int64_t elements) { return AlignedBytes(elements * 4) / 4; }

// Lays the layers' sums out in one buffer, so that one collective combines them all.
Tensor FlattenStatistics(Kernels& kernels, const std::vector<RunningStatistics*>& layers) {
  if (layers.empty()) return Tensor();
  int64_t total = 0;
  for (const RunningStatistics* layer : layers) {
    total += AlignedElements(3 * layer->held_channels());
  }
  Tensor flat = kernels.Empty({total}, DType::kF32, MemoryClass::kParameters);
  kernels.Fill(flat, 0);
  int64_t offset = 0;
  for (RunningStatistics* layer : layers) {
    layer->sums = flat.View(offset, {3, layer->held_channels()});
    offset += AlignedElements(3 * layer->held_channels());
  }
  return flat;
}

// Draws forward and backward of a block into the trace, inside those of the pass.
void TraceBlock(Block& block, Trace& trace) {
  const auto span = std::make_shared<std::optional<TraceSpan>>();
  const auto begin = [span, &trace](const std::string& name) {
    span->emplace(&trace, TraceTrack::kCompute, name);
  };
  block.AddHooks(
      {.before_forward = [begin, name = block.name() + " forward"](Pass&) { begin(name); },
       .after_forward = [span](Pass&) { span->reset(); },
       .before_backward = [begin, name = block.name() + " backward"] { begin(name); },
       .after_backward = [span] { span->reset(); }});
}

}  // namespace

void CompleteGradient(Kernels& kernels, Parameter& parameter, const std::vector<Parameter*>& tied) {
  for (Parameter* other : tied) {
    if (!other->has_gradient()) continue;
    if (parameter.has_gradient()) {
      kernels.Add(parameter.gradient, other->gradient, parameter.gradient);
    } else {
      kernels.Copy(other->gradient, parameter.gradient);
      parameter.MarkGradient();
    }
  }
  if (!parameter.has_gradient()) {
    kernels.Fill(parameter.gradient, 0);
    parameter.MarkGradient();
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

Stage::Stage(Rank& rank, Model model, const std::vector<BlockRange>& ranges,
             const Settings& settings, int64_t targets_per_sample, const ValueMaker& make_values)
    : rank_(rank),
      model_(std::move(model)),
      ranges_(ranges),
      settings_(settings),
      targets_per_sample_(targets_per_sample),
      target_count_(static_cast<double>(settings.batch.size * targets_per_sample)) {
  CHECK(!ranges_.empty());
  BlockRange& last = ranges_.back();
  last.end = std::min<int64_t>(last.end, std::ssize(model_.blocks));
  ListParameters();
  if (make_values) {
    make_values(model_);
  } else {
    MakeValues();
  }
  for (Block* block : OwnBlocks()) {
    for (RunningStatistics* layer : block->Statistics()) {
      (layer->frozen ? frozen_layers_ : layers_).push_back(layer);
    }
    // Behind what a strategy has hung on it: its waits are not the block's.
    TraceBlock(*block, rank.trace);
  }
  Materialize(layers_, rank.kernels);
  Materialize(frozen_layers_, rank.kernels);
  statistics_ = FlattenStatistics(rank.kernels, layers_);
}

std::vector<Block*> Stage::OwnBlocks() const {
  std::vector<Block*> blocks;
  for (const BlockRange& range : ranges_) {
    for (int64_t i = range.begin; i < range.end; ++i) blocks.push_back(model_.blocks[i].get());
  }
  return blocks;
}

void Stage::ListParameters() {
  absl::flat_hash_set<const Parameter*> here;
  for (const Block* block : OwnBlocks()) {
    for (const Parameter* parameter : block->Parameters()) here.insert(parameter);
  }
  for (Parameter* parameter : model_.Parameters()) {
    const bool is_here = here.contains(parameter), owns = parameter->tied_to == nullptr;
    if (owns) owners_.push_back({parameter, is_here, Tensor()});
    if (owns && is_here && parameter->trainable) parameters_.push_back(parameter);
    if (!owns && is_here && !here.contains(parameter->tied_to)) guests_.push_back(parameter);
    if (parameter->trainable && (is_here || here.contains(parameter->tied_to))) {
      parameter->gradient_dtype = settings_.precision.reduce;
      with_gradient_.push_back(parameter);
    }
  }
}

void Stage::MakeValues() {
  for (Owner& owner : owners_) MakeValue(owner);
  for (Parameter* parameter : model_.Parameters()) {
    if (parameter->tied_to != nullptr) parameter->value = parameter->tied_to->value;
  }
  for (Parameter* guest : guests_) guest->value = InComputeDtype(Draw(*guest));
  RoundMasters();
}

void Stage::MakeValue(Owner& owner) {
  const Precision& precision = settings_.precision;
  Parameter& parameter = *owner.parameter;
  if (!owner.is_here) {
    owner.master = Nothing(parameter.trainable ? DType::kF32 : precision.compute);
    return;
  }
  owner.master = parameter.value = Draw(parameter);
  if (!precision.has_masters()) return;
  if (parameter.trainable) {
    owner.master.storage().Rebook(MemoryClass::kOptimizerState);
    parameter.value =
        rank_.kernels.Empty(parameter.held_shape(), precision.compute, MemoryClass::kParameters);
  } else {
    owner.master = parameter.value = InComputeDtype(owner.master);
  }
}

// Initial values, in fp32.
Tensor Stage::Draw(const Parameter& parameter) const {
  Kernels& kernels = rank_.kernels;
  const Tensor drawn = kernels.Empty(parameter.held_shape(), DType::kF32, MemoryClass::kParameters);
  Initialize(parameter, settings_.seed, 0, kernels, drawn);
  return drawn;
}

Tensor Stage::InComputeDtype(const Tensor& drawn) const {
  if (!settings_.precision.has_masters()) return drawn;
  const Tensor rounded =
      rank_.kernels.Empty(drawn.shape(), settings_.precision.compute, MemoryClass::kParameters);
  rank_.kernels.Cast(drawn, rounded);
  return rounded;
}

Tensor Stage::Nothing(DType dtype) const {
  return rank_.kernels.Empty({0}, dtype, MemoryClass::kParameters);
}

void Stage::RoundMasters() {
  if (!settings_.precision.has_masters()) return;
  for (const Owner& owner : owners_) {
    if (!owner.is_here || !owner.parameter->trainable) continue;
    rank_.kernels.Cast(owner.master, owner.parameter->value);
  }
}

void Stage::AllocateGradients() {
  for (Parameter* parameter : with_gradient_) {
    if (parameter->gradient.defined()) continue;
    parameter->gradient = rank_.kernels.Empty(parameter->held_shape(), parameter->gradient_dtype,
                                              MemoryClass::kGradients);
  }
}

void Stage::Clear(double loss_scale) {
  for (Parameter* parameter : with_gradient_) parameter->ClearGradient();
  for (RunningStatistics* layer : layers_) layer->Clear();
  loss_sum_ = {};
  losses_.clear();
  loss_scale_ = loss_scale;
}

Variables Stage::Enter(const Tensor& inputs) {
  const DType dtype = settings_.precision.compute;
  if (!IsFloating(inputs.dtype()) || inputs.dtype() == dtype) return {Variable(inputs)};
  const Tensor cast = rank_.kernels.Empty(inputs.shape(), dtype);
  rank_.kernels.Cast(inputs, cast);
  return {Variable(cast)};
}

Variables Stage::Run(Pass& pass, const BlockRange& blocks, Variables inputs) {
  Variables values = std::move(inputs);
  for (int64_t i = blocks.begin; i < blocks.end; ++i) {
    values = model_.blocks[i]->Run(pass, std::move(values));
  }
  return values;
}

CrossEntropy Stage::Loss(Pass& pass, Variable logits, const Tensor& targets) {
  return SoftmaxCrossEntropy(pass, std::move(logits), targets,
                             static_cast<float>(loss_scale_ / target_count_));
}

void Stage::AddLoss(const CrossEntropy& result) {
  // Kept for the end of the step, behind all activations.
  losses_.push_back(result.losses);
  losses_.back().storage().Rebook(MemoryClass::kWorkspace);
}

ExactSum Stage::LossSum() {
  if (!losses_.empty()) loss_sum_.Add(rank_.kernels.SumOfAll(losses_));
  losses_.clear();
  return loss_sum_;
}

double Stage::MeanLoss(const ExactSum& sum) const { return sum.Total() / target_count_; }

EvaluationSums Stage::Score(Pass& pass, const Variable& logits, const Tensor& targets) {
  const CrossEntropy result = SoftmaxCrossEntropy(pass, logits, targets, 1.0f);
  return {.loss = rank_.kernels.Sum(result.losses),
          .correct = CountCorrect(pass, logits.value, targets)};
}

double Stage::SumLoss(Communicator& ranks) {
  ExactSum sum = LossSum();
  ThrowIfError(AllReduceNumbers(ranks, absl::MakeSpan(sum.bins()), ReduceOp::kSum, "loss"));
  return MeanLoss(sum);
}

Work Stage::SumStatistics(Communicator& ranks) {
  if (!statistics_.defined()) return Work();
  return ranks.AllReduce(statistics_, statistics_, ReduceOp::kSum, "statistics");
}

void Stage::CompleteGradient(Parameter& parameter) {
  lockstep::CompleteGradient(rank_.kernels, parameter, TiedTo(parameter));
}

void Stage::CompleteGradients() {
  for (Parameter* parameter : parameters_) CompleteGradient(*parameter);
}

std::vector<Parameter*> Stage::TiedTo(const Parameter& parameter) const {
  std::vector<Parameter*> tied;
  for (Parameter* other : with_gradient_) {
    if (other->tied_to == &parameter) tied.push_back(other);
  }
  return tied;
}

std::vector<TrainedTensor> Stage::Trained() const {
  const Precision& precision = settings_.precision;
  std::vector<TrainedTensor> trained;
  for (const Owner& owner : owners_) {
    const Parameter& parameter = *owner.parameter;
    if (!parameter.trainable) continue;
    TrainedTensor tensor = {
        .name = parameter.name,
        .value = owner.master,
        .gradient = owner.is_here ? parameter.gradient : Nothing(precision.reduce),
        .decays = parameter.decays()};
    if (precision.has_masters()) {
      tensor.copy = owner.is_here ? parameter.value : Nothing(precision.compute);
    }
    trained.push_back(std::move(tensor));
  }
  return trained;
}

void Stage::UpdateStatistics() {
  const double weight = static_cast<double>(settings_.batch.size) /
                        static_cast<double>(settings_.largest_micro_batch());
  for (RunningStatistics* layer : layers_) layer->Update(rank_.kernels, weight);
}

std::vector<StateTensor> Stage::State() const {
  std::vector<StateTensor> state, frozen;
  for (const Owner& owner : owners_) {
    const Parameter& parameter = *owner.parameter;
    StateTensor tensor = {.name = parameter.name,
                          .tensor = owner.master,
                          .full_shape = parameter.shape,
                          .is_frozen = !parameter.trainable};
    if (owner.is_here) {
      tensor.tensor = owner.master.View(0, parameter.part_shape());  // without padding
      tensor.slice = parameter.slice;
    }
    (tensor.is_frozen ? frozen : state).push_back(std::move(tensor));
  }
  for (StateTensor& tensor : frozen) state.push_back(std::move(tensor));
  for (StateTensor& tensor : StatisticsState()) state.push_back(std::move(tensor));
  return state;
}

std::vector<StateTensor> Stage::StatisticsState() const {
  return StatisticsOf(model_, rank_.allocator());
}

int64_t Stage::statistics_bytes() const {
  // Each channel has a running mean, a running variance and the three sums that update them.
  int64_t bytes = 0;
  // Without a momentum, the number of updates.
  for (const RunningStatistics* layer : layers_) {
    bytes += 5 * 4 * layer->held_channels() + (layer->momentum ? 0 : SizeOf(DType::kI64));
  }
  for (const RunningStatistics* layer : frozen_layers_) bytes += 2 * 4 * layer->held_channels();
  return bytes;
}

CostPrediction Stage::Predict() const {
  const auto elements = [](const std::vector<Parameter*>& parameters) {
    int64_t sum = 0;
    for (const Parameter* parameter : parameters) sum += parameter->held_shape().elements();
    return sum;
  };
  const Precision& precision = settings_.precision;
  const int64_t trained = elements(parameters_);
  int64_t own = 0;
  for (const Owner& owner : owners_) {
    if (owner.is_here) own += owner.parameter->held_shape().elements();
  }
  const int64_t optimizer =
      settings_.optimizer.state_bytes_per_parameter() + (precision.has_masters() ? 4 : 0);
  CostPrediction prediction;
  prediction.memory = {
      {MemoryClass::kParameters,
       (own + elements(guests_)) * SizeOf(precision.compute) + statistics_bytes()},
      {MemoryClass::kGradients, elements(with_gradient_) * SizeOf(precision.reduce)},
      {MemoryClass::kOptimizerState, trained * optimizer}};
  return prediction;
}

}  // namespace lockstep
