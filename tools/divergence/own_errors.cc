#include "tools/divergence/own_errors.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/base/status.h"
#include "tools/divergence/probed_step.h"

namespace lockstep {
namespace {

// Parameters, running statistics and optimizer state that are recorded as `kind` of a step.
absl::Status ReadWeights(const ProbedRun& run, ProbeKind kind, int64_t step, NamedArrays& weights) {
  for (const ProbedWhole& tensor : run.tensors) {
    if (tensor.key.kind != kind || tensor.key.step != step) continue;
    LS_ASSIGN_OR_RETURN(weights[tensor.key.place], ReadArray(run, tensor));
  }
  return absl::OkStatus();
}

absl::Status JudgeStep(const ModelSemantics& model, ProbedStep& step) {
  for (const int64_t number : step.micro_batches()) {
    LS_RETURN_IF_ERROR(std::visit(
        [&](const auto& family) { return JudgeMicroBatch(family, step, number); }, model));
  }
  return step.HoldGradients();
}

}  // namespace

absl::StatusOr<OwnErrors> JudgeOwnErrors(const ProbedRun& run, const ModelSemantics& model,
                                         const std::optional<OptimizerSemantics>& optimizer) {
  OwnErrors errors;
  std::vector<int64_t> steps;
  for (const ProbeFile& file : run.files) steps.push_back(file.header.step);
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  NamedArrays weights;
  LS_RETURN_IF_ERROR(ReadWeights(run, ProbeKind::kStateBefore, steps.front(), weights));
  for (const int64_t step : steps) {
    ProbedStep recorded(run, step, weights, errors);
    LS_RETURN_IF_ERROR(JudgeStep(model, recorded));
    if (optimizer) LS_RETURN_IF_ERROR(JudgeOwnUpdate(run, step, *optimizer, weights, errors));
    if (const auto* resnet = std::get_if<ResNetSemantics>(&model)) {
      LS_RETURN_IF_ERROR(JudgeRunningStatistics(*resnet, recorded));
    }
    LS_RETURN_IF_ERROR(ReadWeights(run, ProbeKind::kStateAfter, step, weights));
  }
  return errors;
}

}  // namespace lockstep
