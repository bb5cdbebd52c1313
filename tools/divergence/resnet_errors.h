// The operations of a ResNet recomputed in double precision from what a run has recorded.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "models/resnet/resnet.h"
#include "tools/divergence/probed_step.h"

namespace lockstep {

// What the operations of a ResNet compute, as far as the shapes of its tensors do not show it.
struct ResNetSemantics {
  // Once a step towards the statistics of all its micro-batches, or once for each of them, in
  // order.
  enum class Estimate { kOfTheStep, kOfEachMicroBatch };

  ResNetOptions::Stem stem = ResNetOptions::Stem::kCifar;
  double norm_epsilon = 1e-5;
  double momentum = 0.1;  // by which the running estimate moves
  Estimate estimate = Estimate::kOfTheStep;
};

// Holds what was recorded of micro-batch `number`, forward and backward, and adds what it
// contributes to the gradients of parameters. Images are square. The errors of ProbedStep, and
// InvalidArgument for rows that are no such images.
absl::Status JudgeMicroBatch(const ResNetSemantics& model, ProbedStep& step, int64_t number);

// Holds the running means and variances after the step to those before it and the convolutions'
// outputs. A normalisation is left out where one micro-batch of its inputs was not recorded.
absl::Status JudgeRunningStatistics(const ResNetSemantics& model, ProbedStep& step);

}  // namespace lockstep
