// The operations of a decoder recomputed in double precision from what a run has recorded.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "tools/divergence/probed_step.h"

namespace lockstep {

// What the operations of a GPT-2 or a Llama compute, as far as the shapes of its tensors do not
// show it.
struct DecoderSemantics {
  enum class Family { kGpt2, kLlama };

  Family family = Family::kGpt2;
  int64_t heads = 1, key_heads = 1;
  int64_t context = 1;  // tokens of a sample
  double norm_epsilon = 1e-5;
  std::vector<double> frequencies = {};  // of rotary positions, one for each plane; Llama only
};

// Holds what was recorded of micro-batch `number`, forward and backward, and adds what it
// contributes to the gradients of parameters. The errors of ProbedStep.
absl::Status JudgeMicroBatch(const DecoderSemantics& model, ProbedStep& step, int64_t number);

}  // namespace lockstep
