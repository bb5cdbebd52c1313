#pragma once

#include <cstdint>

#include "core/nn/model.h"

namespace lockstep {

// Linear, ReLU, Linear: the smallest model that can be cut in two.
struct ToyOptions {
  int64_t inputs = 10;
  int64_t hidden = 10;
  int64_t outputs = 5;
};

// Input [batch, ...] of `inputs` elements a sample (images are flattened), logits [batch, outputs].
// Blocks: net1, relu, net2.
Model MakeToy(const ToyOptions& options);

}  // namespace lockstep
