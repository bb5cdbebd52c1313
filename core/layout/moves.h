// A change of mesh as data: who sends which elements to whom.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/checkpoint/tensor_slice.h"
#include "core/tensor/slice.h"

namespace lockstep {

// What lies on a rank of some tensors. A rank may have several holders, such as its own state and a
// copy of a neighbour's.
struct Holder {
  int rank = 0;
  std::vector<TensorSlice> tensors;  // by tensor; no elements where it has none of a tensor
};

// Consecutive elements of a whole tensor that one holder has and another lacks. The same rank: a
// copy in its memory; else a message.
struct Move {
  size_t tensor = 0;
  size_t from = 0, to = 0;  // holders, by their index in the lists
  Range elements;           // of the whole tensor

  friend bool operator==(const Move&, const Move&) = default;
};

// The moves that give the holders `to` all of their elements out of what the holders `from` have,
// by tensor, each element once. A rank is sent only what no holder of its own has; of several ranks
// that have elements, the one sends them that has the fewest elements to send so far. A function of
// its arguments alone, so that all ranks find the same. DataLoss if nobody has an element, with the
// tensor's index.
absl::StatusOr<std::vector<Move>> PlanMoves(const std::vector<Holder>& from,
                                            const std::vector<Holder>& to);

}  // namespace lockstep
