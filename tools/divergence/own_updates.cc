#include "tools/divergence/own_updates.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/checkpoint/state_tensor.h"
#include "core/nn/running_statistics.h"
#include "core/probe/element_values.h"

namespace lockstep {
namespace {

using reference::Array;
using reference::Result;

// A parameter with its gradient in one step, clipped, and with what the optimizer keeps of it.
struct Update {
  std::string name;
  double decay = 0;  // 0 where it does not decay
  double rate = 0;   // of learning
  double step_number = 1;
  Array before = {};
  Array gradient = {};
  double condition = 1;  // how many times its own rounding the clipped gradient may be off
  std::vector<Array> states = {};
};

// What an optimizer keeps of a parameter, by name of the state; as recorded after the step.
std::vector<std::string> StatesOf(const AdamWSemantics&) {
  return {"first_moment", "second_moment"};
}
std::vector<std::string> StatesOf(const SgdSemantics& sgd) {
  return sgd.momentum == 0 ? std::vector<std::string>() : std::vector<std::string>{"momentum"};
}

// The state after the step, from that before it.
std::vector<Result> NextStates(const AdamWSemantics& adamw, const Update& update) {
  std::vector<Result> states(2, Result(update.gradient.shape));
  for (int64_t i = 0; i < update.gradient.elements(); ++i) {
    const double g = update.gradient[i];
    states[0].Add(i, adamw.beta1 * update.states[0][i]);
    states[0].Add(i, (1 - adamw.beta1) * g, update.condition);
    states[1].Add(i, adamw.beta2 * update.states[1][i]);
    states[1].Add(i, (1 - adamw.beta2) * g * g, 2 * update.condition);
  }
  return states;
}

std::vector<Result> NextStates(const SgdSemantics& sgd, const Update& update) {
  if (sgd.momentum == 0) return {};
  Result momentum(update.gradient.shape);
  for (int64_t i = 0; i < update.gradient.elements(); ++i) {
    momentum.Add(i, sgd.momentum * update.states[0][i]);
    momentum.Add(i, update.gradient[i], update.condition);
    momentum.Add(i, update.decay * update.before[i]);
  }
  return {std::move(momentum)};
}

// The parameter after the step, from the recorded `states` after it.
Result NextParameter(const AdamWSemantics& adamw, const Update& update,
                     const std::vector<Array>& states) {
  const double of_first = 1 - std::pow(adamw.beta1, update.step_number);
  const double of_second = 1 - std::pow(adamw.beta2, update.step_number);
  Result next(update.before.shape);
  for (int64_t i = 0; i < next.elements(); ++i) {
    next.Add(i, update.before[i] * (1 - update.rate * update.decay));
    next.Add(i, -update.rate * (states[0][i] / of_first) /
                    (std::sqrt(states[1][i] / of_second) + adamw.epsilon));
  }
  return next;
}

Result NextParameter(const SgdSemantics& sgd, const Update& update,
                     const std::vector<Array>& states) {
  const bool takes_slope = sgd.momentum == 0 || sgd.nesterov;
  Result next(update.before.shape);
  for (int64_t i = 0; i < next.elements(); ++i) {
    next.Add(i, update.before[i]);
    if (takes_slope) {
      next.Add(i, -update.rate * update.gradient[i], update.condition);
      next.Add(i, -update.rate * update.decay * update.before[i]);
    }
    if (sgd.momentum == 0) continue;
    next.Add(i, -update.rate * (sgd.nesterov ? sgd.momentum : 1) * states[0][i]);
  }
  return next;
}

// Whether it is an estimate of batch normalisation, which has no gradient.
bool IsRunningStatistic(const std::string& name) {
  const RunningStatistics::BufferNames names;
  return name.ends_with(names.mean) || name.ends_with(names.variance);
}

// Judges the update of one step.
class UpdateJudge {
 public:
  UpdateJudge(const ProbedRun& run, int64_t step, const OptimizerSemantics& optimizer,
              OwnErrors& errors)
      : run_(run), step_(step), optimizer_(optimizer), errors_(errors) {}

  absl::Status Judge(const NamedArrays& before) {
    LS_RETURN_IF_ERROR(ReadUpdates(before));
    if (!has_all_ && optimizer_.clip_norm > 0) return absl::OkStatus();
    LS_RETURN_IF_ERROR(JudgeNorm());
    if (optimizer_.clip_norm > 0) LS_RETURN_IF_ERROR(Clip());
    for (const Update& update : updates_) LS_RETURN_IF_ERROR(JudgeStates(update));
    for (const Update& update : updates_) LS_RETURN_IF_ERROR(JudgeParameter(update));
    return absl::OkStatus();
  }

 private:
  const ProbedWhole* After(const std::string& place) const {
    return run_.Find({.step = step_, .kind = ProbeKind::kStateAfter, .place = place});
  }
  std::vector<std::string> StateNames() const {
    return std::visit([](const auto& rule) { return StatesOf(rule); }, optimizer_.rule);
  }
  static std::string PlaceOf(const std::string& state, const std::string& parameter) {
    return absl::StrCat(kOptimizerPrefix, state, ".", parameter);
  }

  absl::Status ReadUpdates(const NamedArrays& before) {
    for (const ProbedWhole& tensor : run_.tensors) {
      const std::string& name = tensor.key.place;
      const auto old = before.find(name);
      if (tensor.key.step != step_ || tensor.key.kind != ProbeKind::kGradient ||
          old == before.end()) {
        continue;
      }
      Update update = {.name = name,
                       .decay = tensor.shape.size() >= 2 ? optimizer_.weight_decay : 0,
                       .rate = optimizer_.learning_rate(step_),
                       .step_number = static_cast<double>(step_) + 1,
                       .before = old->second};
      LS_ASSIGN_OR_RETURN(update.gradient, ReadArray(run_, tensor));
      for (const std::string& state : StateNames()) {
        const auto found = before.find(PlaceOf(state, name));
        update.states.push_back(found != before.end() ? found->second
                                                      : Array(update.gradient.shape));
      }
      updates_.push_back(std::move(update));
    }
    has_all_ = CountParameters() == std::ssize(updates_);
    return absl::OkStatus();
  }

  // Parameters that the record has after the step.
  int64_t CountParameters() const {
    return std::count_if(run_.tensors.begin(), run_.tensors.end(), [&](const ProbedWhole& each) {
      return each.key.step == step_ && each.key.kind == ProbeKind::kStateAfter &&
             !IsOptimizerState(each.key.place) && !IsRunningStatistic(each.key.place);
    });
  }

  double Norm() const {
    double squares = 0;
    for (const Update& update : updates_) {
      for (const double g : update.gradient.value) squares += g * g;
    }
    return std::sqrt(squares);
  }
  // How many roundings a norm in fp32 is off by, at best: those of the additions that a term passes
  // when numbers are added by pairs.
  double NormCondition() const {
    double count = 0;
    for (const Update& update : updates_) count += static_cast<double>(update.gradient.elements());
    return 1 + std::log2(count);
  }

  const ProbedWhole* RecordedNorm() const {
    return run_.Find({.step = step_, .kind = ProbeKind::kNumber, .place = "gradient_norm"});
  }

  // In fp32, whatever the number is written as.
  absl::Status JudgeNorm() {
    const ProbedWhole* recorded = RecordedNorm();
    if (recorded == nullptr || !has_all_) return absl::OkStatus();
    Result expected(Shape({1}));
    expected.Add(0, Norm(), NormCondition());
    return HoldTensor(run_, *recorded, expected, errors_, EpsilonOf(DType::kF32));
  }

  // As torch.nn.utils.clip_grad_norm_ has it, by the norm that was recorded, if one was.
  absl::Status Clip() {
    if (updates_.empty()) return absl::OkStatus();
    double norm = Norm(), condition = NormCondition();
    if (const ProbedWhole* recorded = RecordedNorm()) {
      LS_ASSIGN_OR_RETURN(const Array number, ReadArray(run_, *recorded));
      norm = number[0];
      condition = 1;
    }
    const double factor = optimizer_.clip_norm / (norm + 1e-6);
    if (factor >= 1) return absl::OkStatus();
    for (Update& update : updates_) {
      for (double& g : update.gradient.value) g *= factor;
      update.condition += condition;
    }
    return absl::OkStatus();
  }

  absl::Status JudgeStates(const Update& update) {
    const std::vector<Result> expected =
        std::visit([&](const auto& rule) { return NextStates(rule, update); }, optimizer_.rule);
    const std::vector<std::string> names = StateNames();
    for (size_t i = 0; i < names.size(); ++i) {
      const ProbedWhole* recorded = After(PlaceOf(names[i], update.name));
      if (recorded == nullptr) continue;
      LS_RETURN_IF_ERROR(HoldTensor(run_, *recorded, expected[i], errors_));
    }
    return absl::OkStatus();
  }

  absl::Status JudgeParameter(const Update& update) {
    const ProbedWhole* recorded = After(update.name);
    if (recorded == nullptr) return absl::OkStatus();
    std::vector<Array> states;
    for (const std::string& name : StateNames()) {
      const ProbedWhole* state = After(PlaceOf(name, update.name));
      if (state == nullptr) return absl::OkStatus();
      LS_ASSIGN_OR_RETURN(states.emplace_back(), ReadArray(run_, *state));
    }
    const Result expected = std::visit(
        [&](const auto& rule) { return NextParameter(rule, update, states); }, optimizer_.rule);
    return HoldTensor(run_, *recorded, expected, errors_);
  }

  const ProbedRun& run_;
  const int64_t step_;
  const OptimizerSemantics& optimizer_;
  OwnErrors& errors_;
  std::vector<Update> updates_;
  bool has_all_ = false;  // gradients of all parameters
};

}  // namespace

absl::Status JudgeOwnUpdate(const ProbedRun& run, int64_t step, const OptimizerSemantics& optimizer,
                            const NamedArrays& before, OwnErrors& errors) {
  return UpdateJudge(run, step, optimizer, errors).Judge(before);
}

}  // namespace lockstep
