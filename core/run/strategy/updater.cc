#include "core/run/strategy/updater.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/comm/host_numbers.h"

namespace lockstep {
namespace {

constexpr char kLossScaleName[] = "optimizer.loss_scale";
constexpr char kNormLabel[] = "norm";

// Bytes for each trained element of what `tensors` are; those that are undefined do not count.
double BytesPerElement(const std::vector<Tensor>& tensors) {
  double bytes = 0, elements = 0;
  for (const Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    bytes += static_cast<double>(tensor.bytes());
    elements += static_cast<double>(tensor.elements());
  }
  return elements > 0 ? bytes / elements : 0;
}

std::vector<CostPrediction::PerParameter> BytesPerParameter(
    const std::vector<TrainedTensor>& trained, std::vector<Optimizer::State>& states,
    bool has_masters) {
  const auto of = [&trained](Tensor TrainedTensor::*member) {
    std::vector<Tensor> tensors;
    for (const TrainedTensor& tensor : trained) tensors.push_back(tensor.*member);
    return BytesPerElement(tensors);
  };
  std::vector<CostPrediction::PerParameter> parts = {
      {"parameter", of(has_masters ? &TrainedTensor::copy : &TrainedTensor::value)},
      {"gradient", of(&TrainedTensor::gradient)}};
  if (has_masters) parts.push_back({"master weight", of(&TrainedTensor::value)});
  for (const Optimizer::State& state : states) {
    std::string what = state.kind;
    std::replace(what.begin(), what.end(), '_', ' ');
    parts.push_back({std::move(what), BytesPerElement(state.tensors)});
  }
  return parts;
}

using Axes = std::vector<Communicator*>;

// One axis after the other: largest magnitudes and the bins of SquareSum have no order of sums.
template <typename T>
void ReduceNorm(const Axes& axes, absl::Span<T> values, ReduceOp op) {
  for (Communicator* axis : axes) ThrowIfError(AllReduceNumbers(*axis, values, op, kNormLabel));
}

Axes WithSeveralRanks(Axes axes) {
  std::erase_if(axes, [](const Communicator* axis) { return axis->size() == 1; });
  return axes;
}

NormReduction NormOverRanks(const Axes& divided) {
  if (divided.empty()) return {};
  return {.max =
              [divided](float largest) {
                ReduceNorm(divided, absl::MakeSpan(&largest, 1), ReduceOp::kMax);
                return largest;
              },
          .sum =
              [divided](SquareSum sum) {
                ReduceNorm(divided, absl::MakeSpan(sum.bins), ReduceOp::kSum);
                return sum;
              }};
}

}  // namespace

Updater::Updater(Rank& rank, const Settings& settings, const std::vector<TrainedTensor>& trained,
                 std::vector<Communicator*> holders)
    : rank_(rank),
      settings_(settings),
      holders_(WithSeveralRanks(std::move(holders))),
      norm_(NormOverRanks(holders_)),
      optimizer_(settings.optimizer, rank.kernels, trained),
      loss_scale_(settings.precision.loss_scale),
      per_parameter_(
          BytesPerParameter(trained, optimizer_.states(), settings.precision.has_masters())) {
  if (!loss_scale_.enabled()) return;
  loss_scale_state_ = rank.kernels.Empty({3}, DType::kF64, MemoryClass::kOptimizerState);
  KeepLossScale();
}

StepResult Updater::Step(int64_t step, double loss, const std::vector<TrainedTensor>& trained) {
  StepTimer::Scope scope(rank_.timer, Phase::kOptimizer);
  if (RunProbe* probe = RunProbeOf(rank_)) probe->Gradients(trained);
  StepResult result;
  result.loss = loss;
  result.loss_scale = loss_scale_.scale();
  result.gradient_norm = GradientNorm(rank_.kernels, trained, norm_) / result.loss_scale;
  result.learning_rate = settings_.schedule.RateAt(step);
  const bool is_finite = std::isfinite(result.gradient_norm);
  result.skipped = loss_scale_.enabled() && AgreeOnOverflow(!is_finite);
  // A run that stops here stops with the parameters and the scale from which the step can be
  // repeated. Gradients that overflowed under a finite loss stop no run whose losses are scaled.
  const bool may_stop = settings_.on_nan == OnNan::kStop;
  const bool stops_by_loss = may_stop && !std::isfinite(loss);
  const bool stops = stops_by_loss || (may_stop && !is_finite);
  if (!result.skipped && !stops) {
    const double clip = ClipFactor(result.gradient_norm, settings_.clip_norm);
    optimizer_.Step(step - loss_scale_.skipped(), result.learning_rate,
                    static_cast<float>(clip / result.loss_scale), trained);
  }
  if (loss_scale_.enabled() && !stops_by_loss) {
    ThrowIfError(loss_scale_.Update(result.skipped));
    KeepLossScale();
  }
  return result;
}

bool Updater::AgreeOnOverflow(bool own) {
  Communicator& world = rank_.mesh.world();
  if (world.size() == 1) return own;
  float overflowed = own ? 1 : 0;
  ThrowIfError(AllReduceNumbers(world, absl::MakeSpan(&overflowed, 1), ReduceOp::kMax, "overflow"));
  return overflowed > 0;
}

void Updater::KeepLossScale() {
  const LossScale::State& state = loss_scale_.state();
  const double values[3] = {state.scale, static_cast<double>(state.good_steps),
                            static_cast<double>(state.skipped)};
  rank_.kernels.CopyFromHost(values, loss_scale_state_);
}

void Updater::Restored() {
  if (!loss_scale_.enabled()) return;
  double values[3];
  rank_.kernels.CopyToHost(loss_scale_state_, values);
  loss_scale_.Restore({.scale = values[0],
                       .good_steps = static_cast<int64_t>(values[1]),
                       .skipped = static_cast<int64_t>(values[2])});
}

std::vector<StateTensor> Updater::State(const std::vector<StateTensor>& parameters) {
  std::vector<StateTensor> state;
  for (const Optimizer::State& kind : optimizer_.states()) {
    for (size_t i = 0; i < kind.tensors.size(); ++i) {
      StateTensor tensor = parameters[i];
      tensor.name = kOptimizerPrefix + kind.kind + "." + tensor.name;
      // Behind a part of the parameter there may be padding, here as there.
      tensor.tensor = kind.tensors[i].View(0, tensor.tensor.shape());
      state.push_back(std::move(tensor));
    }
  }
  if (loss_scale_.enabled()) {
    state.push_back({.name = kLossScaleName,
                     .tensor = loss_scale_state_,
                     .full_shape = {3},
                     .is_writer = rank_.rank == 0});
  }
  return state;
}

void Updater::AddTo(CostPrediction& prediction) const {
  prediction.per_parameter = per_parameter_;
  if (loss_scale_state_.defined()) {
    prediction.AddMemory(MemoryClass::kOptimizerState, AlignedBytes(loss_scale_state_.bytes()));
  }
  if (loss_scale_.enabled() && rank_.size > 1) {
    prediction.AddCollective(Operation::kAllReduce, "overflow", rank_.size, sizeof(float));
  }
}

void Updater::AddNormTraffic(CostPrediction& prediction) const {
  for (const Communicator* axis : holders_) {
    prediction.AddCollective(Operation::kAllReduce, kNormLabel, axis->size(),
                             sizeof(float) + 3 * sizeof(double));
  }
}

}  // namespace lockstep
