// Products of experts (experts.h) to which others are added: what experts with low-rank adapters
// are made of. Sums over an expert's features are trees over feature leaves (docs/numerics.md,
// "Feature leaves"); what several products add to one leaf is added before the tree, as
// sliced_operations.h does it for a layer without experts.
//
//   Variables readers = FanOut(tape, x, leaves);  // an expert's outputs are cut
//   Variable y = ExpertOutputs(tape, readers, w, rows, outputs);
//   Variables low = Scale(tape, ExpertProduct(tape, readers, a, rows), scale);
//   y = AddExpertProduct(tape, y, low, b, rows, outputs);
//
//   LeafSum sum = ExpertInputs(tape, x, w, rows, inputs);  // an expert's inputs are cut
//   LeafSum low = Scale(tape, ExpertInputs(tape, x, a, rows, inputs), scale);
//   Variable y = AddUp(tape, AddExpertProduct(tape, std::move(sum), low, b, rows));
//
// Dispatched tensors have [rows->dispatched(), features]; weights have the rows of all experts.
// Empty leaves: features are not cut, and are one leaf.

#pragma once

#include "core/autograd/experts.h"
#include "core/autograd/sliced_operations.h"

namespace lockstep {

// x w(e)^T for the rows of each expert e, w [experts * out, in]: leaf i reads x[i] and makes the
// outputs outputs[i] of [dispatched, out].
Variable ExpertOutputs(Tape& tape, const Variables& x, Leaf& w, const SharedRanges& rows,
                       const FeatureLeaves& outputs);

// The same for the readers of each leaf: all outputs for each of them, one value. Several leaves
// have an accumulator each in w.
Variables ExpertProduct(Tape& tape, const Variables& x, Leaf& w, const SharedRanges& rows);

// y + x w(e)^T, w [experts * out, in]: leaf i reads x[i] and adds to the outputs outputs[i] of
// y [dispatched, out].
Variable AddExpertProduct(Tape& tape, const Variable& y, const Variables& x, Leaf& w,
                          const SharedRanges& rows, const FeatureLeaves& outputs);

// x w(e), w [experts * in, out]: leaf i is made from the features inputs[i] of x [dispatched, in].
LeafSum ExpertInputs(Tape& tape, const Variable& x, Leaf& w, const SharedRanges& rows,
                     const FeatureLeaves& inputs);

// y + x w(e)^T for each leaf of a sum, w [experts * out, in]. Several leaves have an accumulator
// each in w. Uses y up.
LeafSum AddExpertProduct(Tape& tape, LeafSum y, const LeafSum& x, Leaf& w,
                         const SharedRanges& rows);

}  // namespace lockstep
