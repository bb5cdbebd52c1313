#pragma once

#include <string>

#include "core/comm/signature.h"
#include "core/tensor/tensor.h"

namespace lockstep {

// One member's call, checked for what a member can see alone, as a backend gets it.
struct Call {
  Signature signature;
  // What the member reads and writes; undefined where its part has none. In place: the input lies
  // in the output (or the output in the input) at the member's own part. A broadcast has its tensor
  // in both, a send only an input, a receive only an output.
  Tensor input;
  Tensor output;
  std::string label;  // what the call is for: "gradients", "parameters", ...
};

}  // namespace lockstep
