#pragma once

#include <cstdint>
#include <span>

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

}  // namespace lockstep
