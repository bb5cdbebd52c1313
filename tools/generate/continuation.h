#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/kernels/kernels.h"
#include "core/nn/model.h"

namespace lockstep {

struct SamplingOptions {
  double temperature = 1;  // at least 0, which takes the likeliest token as top_k = 1 does
  int64_t top_k = 0;       // only so many of the likeliest tokens; 0: all
};

// Draws a token from softmax(logits / temperature), cut down to the `top_k` largest logits (of
// equal ones, the tokens that come first) and scaled up again to 1: the first token at which the
// sum of probabilities, in the order of tokens, exceeds `uniform`, a random number in [0, 1). In
// double precision. Requires logits, of which at least one is finite and none is NaN or plus
// infinity.
int32_t SampleToken(std::span<const float> logits, const SamplingOptions& options, double uniform);

struct ContinuationOptions {
  int64_t context = 1;  // tokens that the model sees at most: the last ones
  int64_t tokens = 1;   // to add
  SamplingOptions sampling = {};
  uint64_t seed = 1;
  std::optional<int32_t> stop = {};  // ends the text before all are there
};

// Continues a text of at least one token. Each new one is drawn from the logits that the model
// gives for the last ones, by a random number of its own, which belongs to (seed, its place in the
// continuation); `emit` hears of it at once. Keys and values are kept (core/nn/key_value_cache.h),
// so that each token costs a pass over one token, until the text is longer than the context: from
// then on the window moves, positions with it, and each token costs a pass over the window. The
// tokens are those that a pass over the window would choose each time. Throws StatusException: no
// memory, or logits that are infinite or NaN.
void Continue(Model& model, Kernels& kernels, std::vector<int32_t> text,
              const ContinuationOptions& options, const std::function<void(int32_t)>& emit);

}  // namespace lockstep
