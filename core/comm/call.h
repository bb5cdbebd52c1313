#pragma once

#include <cstdint>
#include <string>

#include "core/comm/signature.h"
#include "core/tensor/tensor.h"

namespace lockstep {

// One member's call, checked for what a member can see alone, as a backend gets it.
struct Call {
  Signature signature;
  // What the member reads and writes; undefined where its chunk has none. In place: the input lies
  // in the output (or the output in the input) at the member's own chunk. A broadcast has its
  // tensor in both, a send only an input, a receive only an output.
  Tensor input;
  Tensor output;
  std::string label;  // what the call is for: "gradients", "parameters", ...
  // Where the number of the call's ledger entry goes, if it is whoever made this that finishes the
  // entry and books what the rank waits; null: the backend does.
  int64_t* open_entry = nullptr;
};

}  // namespace lockstep
