// The order of a micro-batch's rows in memory when its tokens are cut into leaves
// (docs/numerics.md, "Token leaves").
//
// Each sequence is cut into 2 * leaves chunks of equal length. Leaf i is chunks i and
// 2 * leaves - 1 - i of every sample, in this order: the queries of every leaf see equally many
// keys, and an aligned run of leaves is a rank's zig-zag share of a causal sequence. Rows lie in
// memory by (leaf, sample, place in the leaf):
//
//   time = 12, leaves = 3: leaf 0 holds positions 0 1 10 11
//                          leaf 1 holds positions 2 3 8 9
//                          leaf 2 holds positions 4 5 6 7
//
// One leaf is a whole sample, whatever its time, in the order of positions.
//
// Ranks that divide the sequences hold equal runs of consecutive leaves, and so of rows. Leaves and
// rows keep their numbers among all of the micro-batch's.

#pragma once

#include <cstdint>

#include "core/base/host_device.h"

namespace lockstep {

struct TokenOrder {
  int64_t samples = 1;
  int64_t time = 0;  // tokens of a sample
  int64_t leaves = 1;
  int64_t runs = 1;  // equal runs of leaves, each held by another rank
  int64_t run = 0;   // the one that is held here

  // Whether `time` can be cut into so many leaves.
  bool Fits() const { return leaves == 1 || (leaves > 1 && time % (2 * leaves) == 0); }

  int64_t rows() const { return samples * time; }
  // What is held here: leaves, and rows, from first_leaf() and first_row() on.
  int64_t held_leaves() const { return leaves / runs; }
  int64_t first_leaf() const { return run * held_leaves(); }
  int64_t held_rows() const { return rows() / runs; }
  int64_t first_row() const { return run * held_rows(); }
  int64_t leaf_rows() const { return samples * leaf_time(); }
  // Places of a leaf in each sample.
  LS_HOST_DEVICE int64_t leaf_time() const { return time / leaves; }
  // Positions of a chunk. A leaf has a second chunk unless it is the only one.
  LS_HOST_DEVICE int64_t chunk() const { return leaves == 1 ? time : time / (2 * leaves); }

  LS_HOST_DEVICE int64_t RowOf(int64_t leaf, int64_t sample, int64_t place) const {
    return (leaf * samples + sample) * leaf_time() + place;
  }

  // The first positions of a leaf's two chunks; `time` where there is no second one.
  LS_HOST_DEVICE int64_t FirstChunk(int64_t leaf) const { return leaf * chunk(); }
  LS_HOST_DEVICE int64_t SecondChunk(int64_t leaf) const {
    return (2 * leaves - 1 - leaf) * chunk();
  }

  // The position in its sample of the token at a place of a leaf; both ascend together.
  LS_HOST_DEVICE int64_t PositionOf(int64_t leaf, int64_t place) const {
    return place < chunk() ? FirstChunk(leaf) + place : SecondChunk(leaf) + place - chunk();
  }

  // Number of places of `leaf` that a query at `position` sees: those at its position and before,
  // which are the first ones of the leaf.
  LS_HOST_DEVICE int64_t VisibleOf(int64_t leaf, int64_t position) const {
    return OfChunk(position + 1 - FirstChunk(leaf)) + OfChunk(position + 1 - SecondChunk(leaf));
  }

 private:
  // The number of those among `count` positions, from a chunk's first one on, that are the chunk's.
  LS_HOST_DEVICE int64_t OfChunk(int64_t count) const {
    return count < 0 ? 0 : count < chunk() ? count : chunk();
  }
};

}  // namespace lockstep
