#include "tools/divergence/own_updates.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/checkpoint/state_tensor.h"
#include "core/probe/element_values.h"

namespace lockstep {
namespace {

using reference::Array;
using reference::Result;

// A parameter with its gradient in one step.
struct Update {
  std::string name;
  bool decays = true;
  Array before;
  Array gradient = {};
  Array first_moment = {}, second_moment = {};  // before the step
};

// Judges the update of one step.
class UpdateJudge {
 public:
  UpdateJudge(const ProbedRun& run, int64_t step, const AdamWSemantics& optimizer,
              OwnErrors& errors)
      : run_(run), step_(step), optimizer_(optimizer), errors_(errors) {}

  absl::Status Judge(const std::map<std::string, Array>& before) {
    LS_RETURN_IF_ERROR(ReadUpdates(before));
    if (!has_all_ && optimizer_.clip_norm > 0) return absl::OkStatus();
    double squares = 0;
    for (const Update& update : updates_) {
      for (const double g : update.gradient.value) squares += g * g;
    }
    const double norm = std::sqrt(squares);
    if (has_all_) LS_RETURN_IF_ERROR(JudgeNorm(norm));
    // As torch.nn.utils.clip_grad_norm_ has it.
    if (optimizer_.clip_norm > 0) clip_ = std::min(1.0, optimizer_.clip_norm / (norm + 1e-6));
    for (const Update& update : updates_) LS_RETURN_IF_ERROR(JudgeMoments(update));
    for (const Update& update : updates_) LS_RETURN_IF_ERROR(JudgeParameter(update));
    return absl::OkStatus();
  }

 private:
  static std::string FirstMoment(const std::string& name) {
    return absl::StrCat(kOptimizerPrefix, "first_moment.", name);
  }
  static std::string SecondMoment(const std::string& name) {
    return absl::StrCat(kOptimizerPrefix, "second_moment.", name);
  }
  const ProbedWhole* After(const std::string& place) const {
    return run_.Find({.step = step_, .kind = ProbeKind::kStateAfter, .place = place});
  }

  absl::Status ReadUpdates(const std::map<std::string, Array>& before) {
    int64_t parameters = 0;
    for (const ProbedWhole& tensor : run_.tensors) {
      if (tensor.key.step != step_) continue;
      if (tensor.key.kind == ProbeKind::kStateAfter && !IsOptimizerState(tensor.key.place)) {
        ++parameters;
      }
      const std::string& name = tensor.key.place;
      const auto old = before.find(name);
      if (tensor.key.kind != ProbeKind::kGradient || old == before.end()) continue;
      Update update = {.name = name, .decays = tensor.shape.size() >= 2, .before = old->second};
      LS_ASSIGN_OR_RETURN(update.gradient, ReadArray(run_, tensor));
      for (const auto& [place, moment] : {std::pair(FirstMoment(name), &update.first_moment),
                                          std::pair(SecondMoment(name), &update.second_moment)}) {
        const auto found = before.find(place);
        *moment = found != before.end() ? found->second : Array(update.gradient.shape);
      }
      updates_.push_back(std::move(update));
    }
    has_all_ = parameters == std::ssize(updates_);
    return absl::OkStatus();
  }

  // In fp32, whatever the number is written as.
  absl::Status JudgeNorm(double norm) {
    const ProbedWhole* recorded =
        run_.Find({.step = step_, .kind = ProbeKind::kNumber, .place = "gradient_norm"});
    if (recorded == nullptr) return absl::OkStatus();
    Result expected(Shape({1}));
    expected.Add(0, norm);
    return HoldTensor(run_, *recorded, expected, errors_, EpsilonOf(DType::kF32));
  }

  absl::Status JudgeMoments(const Update& update) {
    Result first(update.gradient.shape), second(update.gradient.shape);
    for (int64_t i = 0; i < update.gradient.elements(); ++i) {
      const double g = clip_ * update.gradient[i];
      first.Add(i, optimizer_.beta1 * update.first_moment[i]);
      first.Add(i, (1 - optimizer_.beta1) * g);
      second.Add(i, optimizer_.beta2 * update.second_moment[i]);
      second.Add(i, (1 - optimizer_.beta2) * g * g);
    }
    for (const auto& [place, expected] : {std::pair(FirstMoment(update.name), &first),
                                          std::pair(SecondMoment(update.name), &second)}) {
      const ProbedWhole* recorded = After(place);
      if (recorded == nullptr) continue;
      LS_RETURN_IF_ERROR(HoldTensor(run_, *recorded, *expected, errors_));
    }
    return absl::OkStatus();
  }

  absl::Status JudgeParameter(const Update& update) {
    const ProbedWhole* recorded = After(update.name);
    const ProbedWhole* first = After(FirstMoment(update.name));
    const ProbedWhole* second = After(SecondMoment(update.name));
    if (recorded == nullptr || first == nullptr || second == nullptr) return absl::OkStatus();
    LS_ASSIGN_OR_RETURN(const Array m, ReadArray(run_, *first));
    LS_ASSIGN_OR_RETURN(const Array v, ReadArray(run_, *second));
    const double rate = optimizer_.learning_rate(step_);
    const double number = static_cast<double>(step_) + 1;
    const double of_first = 1 - std::pow(optimizer_.beta1, number);
    const double of_second = 1 - std::pow(optimizer_.beta2, number);
    const double decay = update.decays ? rate * optimizer_.weight_decay : 0;
    Result expected(update.before.shape);
    for (int64_t i = 0; i < expected.elements(); ++i) {
      expected.Add(i, update.before[i] * (1 - decay));
      expected.Add(i,
                   -rate * (m[i] / of_first) / (std::sqrt(v[i] / of_second) + optimizer_.epsilon));
    }
    return HoldTensor(run_, *recorded, expected, errors_);
  }

  const ProbedRun& run_;
  const int64_t step_;
  const AdamWSemantics& optimizer_;
  OwnErrors& errors_;
  std::vector<Update> updates_;
  bool has_all_ = false;  // gradients of all parameters
  double clip_ = 1;
};

}  // namespace

absl::Status JudgeOwnUpdate(const ProbedRun& run, int64_t step, const AdamWSemantics& optimizer,
                            const std::map<std::string, Array>& before, OwnErrors& errors) {
  return UpdateJudge(run, step, optimizer, errors).Judge(before);
}

}  // namespace lockstep
