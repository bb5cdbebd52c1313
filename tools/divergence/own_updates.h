// The end of a step judged by its own error: the norm of the gradients, the optimizer's state, and
// the parameters, recomputed in double precision from what the same run recorded before them.

#pragma once

#include <cstdint>
#include <functional>
#include <variant>

#include "absl/status/status.h"
#include "core/probe/probed_run.h"
#include "tools/divergence/held_tensors.h"
#include "tools/divergence/probed_step.h"

namespace lockstep {

// As torch.optim has them: AdamW decays parameters beside its step, SGD by its gradients.
struct AdamWSemantics {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
};
struct SgdSemantics {
  double momentum = 0;
  bool nesterov = false;
};

// An optimizer of gradients that are clipped to a norm. Parameters of fewer than two dimensions do
// not decay.
struct OptimizerSemantics {
  std::variant<AdamWSemantics, SgdSemantics> rule;
  double weight_decay = 0;
  double clip_norm = 0;                                         // 0: gradients are not clipped
  std::function<double(int64_t step)> learning_rate = nullptr;  // steps count from 0
};

// Judges one step: the number gradient_norm, if it was recorded; then the optimizer's state of each
// parameter; then the parameters, from the state that the run recorded. `before`: parameters and
// optimizer state before the step, by name; state that is not there is zero. Nothing is judged
// where gradients are clipped and some parameter's gradient was not recorded. The errors of
// ReadProbedValues.
absl::Status JudgeOwnUpdate(const ProbedRun& run, int64_t step, const OptimizerSemantics& optimizer,
                            const NamedArrays& before, OwnErrors& errors);

}  // namespace lockstep
