// The end of a step judged by its own error: the norm of the gradients, the state of AdamW, and the
// parameters, recomputed in double precision from what the same run recorded before them.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "core/kernels/reference.h"
#include "core/probe/probed_run.h"
#include "tools/divergence/held_tensors.h"

namespace lockstep {

// An AdamW with gradients that are clipped to a norm. Parameters of fewer than two dimensions do
// not decay.
struct AdamWSemantics {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0;
  double clip_norm = 0;                                         // 0: gradients are not clipped
  std::function<double(int64_t step)> learning_rate = nullptr;  // steps count from 0
};

// Judges one step: the number gradient_norm, if it was recorded; then the moments of each
// parameter; then the parameters, from the moments that the run recorded. `before`: parameters and
// optimizer state before the step, by name; moments that are not there are zeros. Nothing is judged
// where gradients are clipped and some parameter's gradient was not recorded. The errors of
// ReadProbedValues.
absl::Status JudgeOwnUpdate(const ProbedRun& run, int64_t step, const AdamWSemantics& optimizer,
                            const std::map<std::string, reference::Array>& before,
                            OwnErrors& errors);

}  // namespace lockstep
