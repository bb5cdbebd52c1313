// What each operation moves: the one table that the demos' check and their pictures are made from.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "core/comm/operation.h"

namespace lockstep {

// A part of one rank's data, before or after an operation.
struct Cell {
  int rank = 0;
  int part = 0;

  friend bool operator==(const Cell&, const Cell&) = default;
};

// Where what a cell holds afterwards comes from. Several sources are reduced, in this order.
struct Flow {
  std::vector<Cell> from;
  Cell to;

  friend bool operator==(const Flow&, const Flow&) = default;
};

struct Movement {
  // Elements of each part, by rank and part. A rank that brings or gets nothing has no part.
  std::vector<std::vector<int64_t>> before, after;
  std::vector<Flow> flows;  // one for each cell of `after`, by rank and part
};

// The movement of an operation among counts.size() ranks. counts[i] is the number of elements of
// rank i's part; where the operation has no parts, all of them are equal and each is the size of a
// rank's data. kSend stands for a send and the receive that meets it, from each rank to the next;
// kBarrier for the word "I am here" that each rank gives to all. `root` matters where the operation
// has one. CHECKs that it is none of kRecv and kSplit.
Movement MovementOf(Operation operation, absl::Span<const int64_t> counts, int root);

}  // namespace lockstep
