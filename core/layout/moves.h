// A change of mesh as data: who sends which elements to whom.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/checkpoint/tensor_slice.h"
#include "core/tensor/slice.h"

namespace lockstep {

// A rank, and the elements of some tensors that it has. A rank may have several holders, such as
// its own state and a copy of a neighbour's.
struct Holder {
  int rank = 0;
  std::vector<TensorSlice> tensors;  // by tensor; no elements where it has none of a tensor
};

// Consecutive elements of a whole tensor that one holder has and another lacks. Between holders of
// one rank it is a copy in memory, otherwise a message.
struct Move {
  size_t tensor = 0;
  size_t from = 0, to = 0;  // holders, by their index in the lists
  Range elements;           // of the whole tensor

  friend bool operator==(const Move&, const Move&) = default;
};

// Returns the moves that give the holders `to` all of their elements, each once, out of the
// elements of the holders `from`; by tensor. A rank is sent only elements that no holder of its own
// has. Where several ranks have elements, the rank sends them that has the fewest to send so far.
// The result depends on the arguments alone, so all ranks find the same moves. DataLoss, with the
// tensor's index, if nobody has an element.
absl::StatusOr<std::vector<Move>> PlanMoves(const std::vector<Holder>& from,
                                            const std::vector<Holder>& to);

}  // namespace lockstep
