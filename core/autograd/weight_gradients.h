// For operations with leaves: where the gradients of these go.

#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <vector>

#include "core/autograd/leaf.h"
#include "core/autograd/tape.h"
#include "core/tensor/slice.h"

namespace lockstep {

inline bool Trains(const Leaf* leaf) { return leaf != nullptr && leaf->trainable; }

// Where the gradients of an operation's leaves go: undefined for leaves that are not trained, or
// when this half does not compute weights. Kernels write all of them in one mode.
struct Destinations {
  std::vector<Tensor> tensors;
  Write write = Write::kOverwrite;

  const Tensor& operator[](int i) const { return tensors[i]; }
};
Destinations NextContributions(Kernels& kernels, Tape::Half half,
                               std::initializer_list<Leaf*> leaves);

// The rows of one token leaf in an operation; none: all rows.
using LeafRows = std::optional<Range>;

// The same for an operation of `rows` rows, which several token leaves may share
// (docs/numerics.md, "Token leaves"). Calls compute(rows, destinations) once for each token leaf,
// or once for all rows where these are not cut or nothing is trained. A parameter that has
// accumulators gets the sum of each token leaf in an accumulator of its own. Any other parameter
// gets the sum of all token leaves along their tree, each node rounded to the gradient's dtype; a
// second contribution to it before its shard ends is a CHECK.
void ForTokenLeaves(
    Tape& tape, Tape::Half half, std::initializer_list<Leaf*> leaves, int64_t rows,
    const std::function<void(const LeafRows& rows, const Destinations& destinations)>& compute);

// The same for an operation whose rows `count` leaves share in any way. Calls compute(leaf,
// destinations) for each of them, or once without a leaf.
void ForLeaves(Tape& tape, Tape::Half half, std::initializer_list<Leaf*> leaves, int64_t count,
               const std::function<void(std::optional<int64_t> leaf,
                                        const Destinations& destinations)>& compute);

// The rows of each token leaf among so many rows: one entry for all where they are not cut.
std::vector<LeafRows> TokenLeaves(const Tape& tape, int64_t rows);

// These rows of x [..., width], or these elements of x [rows]; undefined where x is. A view, or a
// copy where no view can begin.
Tensor RowsOf(Kernels& kernels, const Tensor& x, const LeafRows& rows);

// The same rows of a result that is written leaf by leaf. Put brings a copy back.
class RowsToFill {
 public:
  // `whole` may be undefined: then so are the rows.
  RowsToFill(Kernels& kernels, const Tensor& whole, const LeafRows& rows);

  const Tensor& tensor() const { return own_; }
  void Put() const;

 private:
  Kernels& kernels_;
  Tensor whole_, own_;
  LeafRows rows_;
};

}  // namespace lockstep
