// What training and validation give, the same on every rank.

#pragma once

#include <string>
#include <vector>

namespace lockstep {

// The fractions of a step's choices that named each expert of a mixture.
struct ExpertLoadOfLayer {
  std::string layer;  // its router's name
  std::vector<float> fractions = {};
};

// The result of a training step.
struct StepResult {
  double loss = 0;           // mean over all targets of the global batch
  double gradient_norm = 0;  // before clipping, without the loss scale
  double learning_rate = 0;
  double loss_scale = 1;  // that the step ran with
  bool skipped = false;   // gradients overflowed: nothing was changed
  std::vector<ExpertLoadOfLayer> expert_load = {};
};

// Means over the validation split.
struct ValidationResult {
  double loss = 0;
  double accuracy = 0;  // of classification, and of the next token
};

}  // namespace lockstep
