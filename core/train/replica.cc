#include "core/train/replica.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/autograd/operations.h"
#include "core/base/status.h"
#include "core/nn/loss.h"
#include "core/train/trace.h"
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

// Draws forward and backward of each block into the trace, inside those of the pass.
void TraceBlocks(Model& model, Trace& trace) {
  for (auto& block : model.blocks) {
    const auto span = std::make_shared<std::optional<TraceSpan>>();
    const auto begin = [span, &trace](const std::string& name) {
      span->emplace(&trace, TraceTrack::kCompute, name);
    };
    block->AddHooks(
        {.before_forward = [begin, name = block->name() + " forward"](Pass&) { begin(name); },
         .after_forward = [span](Pass&) { span->reset(); },
         .before_backward = [begin, name = block->name() + " backward"] { begin(name); },
         .after_backward = [span] { span->reset(); }});
  }
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

Replica::Replica(Rank& rank, Model model, const Settings& settings, int64_t targets_per_sample,
                 const ValueMaker& make_values)
    : rank_(rank),
      model_(std::move(model)),
      settings_(settings),
      target_count_(static_cast<double>(settings.batch.size * targets_per_sample)),
      all_parameters_(model_.Parameters()),
      layers_(model_.Statistics()) {
  for (Parameter* parameter : all_parameters_) {
    parameter->gradient_dtype = settings.precision.reduce;
    if (parameter->tied_to == nullptr) parameters_.push_back(parameter);
  }
  if (make_values) {
    make_values(model_);
  } else {
    Materialize(all_parameters_, settings.seed, rank.kernels);
    MakeMasters();
  }
  Materialize(layers_, rank.kernels);
  statistics_ = FlattenStatistics(rank.kernels, layers_);
  // Behind what a strategy has hung on them: its waits are not theirs.
  TraceBlocks(model_, rank.trace);
}

void Replica::MakeMasters() {
  const Precision& precision = settings_.precision;
  for (Parameter* parameter : parameters_) {
    masters_.push_back(parameter->value);
    if (!precision.has_masters()) continue;
    parameter->value.storage().Rebook(MemoryClass::kOptimizerState);
    parameter->value =
        rank_.kernels.Empty(parameter->held_shape(), precision.compute, MemoryClass::kParameters);
    for (Parameter* tied : TiedTo(*parameter)) tied->value = parameter->value;
  }
  RoundMasters();
}

void Replica::RoundMasters() {
  if (!settings_.precision.has_masters()) return;
  for (size_t i = 0; i < masters_.size(); ++i) {
    rank_.kernels.Cast(masters_[i], parameters_[i]->value);
  }
}

void Replica::AllocateGradients() {
  for (Parameter* parameter : all_parameters_) {
    if (parameter->gradient.defined()) continue;
    parameter->gradient = rank_.kernels.Empty(parameter->held_shape(), parameter->gradient_dtype,
                                              MemoryClass::kGradients);
  }
}

Variables Replica::RunBlocks(Pass& pass, const Tensor& inputs) {
  const DType dtype = settings_.precision.compute;
  Variables values = {Variable(inputs)};
  if (IsFloating(inputs.dtype()) && inputs.dtype() != dtype) {
    values[0].value = rank_.kernels.Empty(inputs.shape(), dtype);
    rank_.kernels.Cast(inputs, values[0].value);
  }
  for (auto& block : model_.blocks) values = block->Run(pass, std::move(values));
  return values;
}

void Replica::ForwardBackward(int64_t step, int64_t micro_batch, const Batch& batch,
                              const BackwardHooks& hooks) {
  Tape tape(rank_.kernels);
  Pass pass = {.tape = tape,
               .seed = settings_.seed,
               .step = step,
               .micro_batch = micro_batch,
               .inputs = batch.inputs.shape()};
  CrossEntropy result;
  {
    StepTimer::Scope scope(rank_.timer, Phase::kForward, micro_batch);
    Variables logits = RunBlocks(pass, batch.inputs);
    result = SoftmaxCrossEntropy(pass, std::move(logits[0]), batch.targets,
                                 static_cast<float>(loss_scale_ / target_count_));
  }
  StepTimer::Scope scope(rank_.timer, Phase::kBackward, micro_batch);
  tape.OnLeafReady(hooks.leaf_ready);
  hooks.before(tape);
  tape.Backward();
  loss_ += rank_.kernels.Sum(result.losses) / target_count_;
}

EvaluationSums Replica::Evaluate(const Batch& batch) {
  Tape tape(rank_.kernels, Tape::Recording::kOff);
  Pass pass = {.tape = tape,
               .mode = Pass::Mode::kEvaluate,
               .seed = settings_.seed,
               .inputs = batch.inputs.shape()};
  const Variables logits = RunBlocks(pass, batch.inputs);
  const CrossEntropy result = SoftmaxCrossEntropy(pass, logits[0], batch.targets, 1.0f);
  return {.loss = rank_.kernels.Sum(result.losses),
          .correct = CountCorrect(pass, logits[0].value, batch.targets)};
}

void Replica::Clear(double loss_scale) {
  for (Parameter* parameter : all_parameters_) parameter->ClearGradient();
  for (RunningStatistics* layer : layers_) layer->Clear();
  loss_ = 0;
  loss_scale_ = loss_scale;
}

void Replica::CompleteGradient(Parameter& parameter) {
  lockstep::CompleteGradient(rank_.kernels, parameter, TiedTo(parameter));
}

void Replica::CompleteGradients() {
  for (Parameter* parameter : parameters_) CompleteGradient(*parameter);
}

std::vector<Parameter*> Replica::TiedTo(const Parameter& parameter) const {
  std::vector<Parameter*> tied;
  for (Parameter* other : all_parameters_) {
    if (other->tied_to == &parameter) tied.push_back(other);
  }
  return tied;
}

std::vector<TrainedTensor> Replica::Trained() const {
  std::vector<TrainedTensor> trained;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = *parameters_[i];
    trained.push_back({.name = parameter.name,
                       .value = masters_[i],
                       .gradient = parameter.gradient,
                       .decays = parameter.decays(),
                       .copy = settings_.precision.has_masters() ? parameter.value : Tensor()});
  }
  return trained;
}

void Replica::UpdateStatistics() {
  for (RunningStatistics* layer : layers_) {
    layer->Update(rank_.kernels, settings_.batch.shards * settings_.batch.micro_batches);
  }
}

std::vector<StateTensor> Replica::State() const {
  std::vector<StateTensor> state;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = *parameters_[i];
    state.push_back({.name = parameter.name,
                     .tensor = masters_[i].View(0, parameter.part_shape()),  // without padding
                     .full_shape = parameter.shape,
                     .slice = parameter.slice});
  }
  for (StateTensor& tensor : StatisticsState()) state.push_back(std::move(tensor));
  return state;
}

std::vector<StateTensor> Replica::StatisticsState() const {
  std::vector<StateTensor> state;
  for (const RunningStatistics* layer : layers_) {
    const auto add = [&](const char* leaf, const Tensor& estimate) {
      state.push_back({.name = layer->name + leaf,
                       .tensor = estimate,
                       .full_shape = {layer->channels},
                       .slice = layer->slice});
    };
    add(".running_mean", layer->mean);
    add(".running_var", layer->variance);
  }
  return state;
}

double Replica::SumLoss(Communicator& ranks) {
  Tensor sum = rank_.kernels.Empty({1}, DType::kF64, MemoryClass::kCommunication);
  double loss = loss_;
  rank_.kernels.CopyFromHost(&loss, sum);
  ThrowIfError(ranks.AllReduce(sum, sum, ReduceOp::kSum, "loss").Wait());
  rank_.kernels.CopyToHost(sum, &loss);
  return loss;
}

Work Replica::SumStatistics(Communicator& ranks) {
  if (!statistics_.defined()) return Work();
  return ranks.AllReduce(statistics_, statistics_, ReduceOp::kSum, "statistics");
}

int64_t Replica::statistics_bytes() const {
  // Of each channel: running mean and variance, and the three sums that they are updated from.
  int64_t bytes = 0;
  for (const RunningStatistics* layer : layers_) bytes += 5 * 4 * layer->held_channels();
  return bytes;
}

CostPrediction Replica::Predict() const {
  int64_t parameters = 0, gradients = 0;  // elements; a tied parameter has a gradient of its own
  for (const Parameter* parameter : all_parameters_) {
    const int64_t held = parameter->held_shape().elements();
    gradients += held;
    if (parameter->tied_to == nullptr) parameters += held;
  }
  const Precision& precision = settings_.precision;
  const int64_t optimizer =
      settings_.optimizer.state_bytes_per_parameter() + (precision.has_masters() ? 4 : 0);
  CostPrediction prediction;
  prediction.memory = {
      {MemoryClass::kParameters, parameters * SizeOf(precision.compute) + statistics_bytes()},
      {MemoryClass::kGradients, gradients * SizeOf(precision.reduce)},
      {MemoryClass::kOptimizerState, parameters * optimizer}};
  return prediction;
}

}  // namespace lockstep
