// Parts of a forward pass that backward computes again, instead of keeping what they make. Whoever
// runs a model decides what is recomputed (Block::recomputed); blocks and layers only name parts.

#pragma once

#include <functional>
#include <string_view>

#include "core/autograd/variable.h"
#include "core/nn/pass.h"

namespace lockstep {

// Runs `function` on `inputs` and keeps the inputs only (Tape::Recompute), where the tape records.
// The second run gets a pass of its own, which has no skips and says is_recomputing().
using PassFunction = std::function<Variables(Pass& pass, Variables inputs)>;
Variables Recomputed(Pass& pass, Variables inputs, const PassFunction& function);

// Runs `function` on `inputs` as one operation of a layer, of a kind that users name ("attention",
// "mlp"): recomputed where the block that is running recomputes operations of this kind. What
// `function` refers to must outlive the tape.
using OperationFunction = std::function<Variable(Pass& pass, const Variables& inputs)>;
Variable Operate(Pass& pass, std::string_view kind, Variables inputs,
                 const OperationFunction& function);

}  // namespace lockstep
