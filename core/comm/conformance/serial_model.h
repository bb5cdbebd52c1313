// What the operations mean, written for one thread, without regard to speed: the reference of the
// conformance suite.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/comm/operation.h"
#include "core/tensor/dtype.h"

namespace lockstep {

using Bytes = std::vector<std::byte>;

// A collective as a test sees it: all members' chunks.
struct Case {
  Operation operation = Operation::kAllReduce;
  DType dtype = DType::kF32;
  ReduceOp reduce_op = ReduceOp::kSum;
  int root = 0;
  std::vector<int64_t> counts;  // elements of each member's chunk; the payload is all of them
  bool in_place = false;
  uint64_t seed = 0;  // of the inputs

  int size() const { return static_cast<int>(counts.size()); }
  int64_t total() const;
  int64_t begin_of(int member) const;
};

// 64 random bits for (seed, index); the same everywhere.
uint64_t RandomBits(uint64_t seed, uint64_t index);

// How many elements a member brings and gets; 0 for no tensor.
int64_t InputCount(const Case& c, int member);
int64_t OutputCount(const Case& c, int member);

// What a member brings: numbers of mixed sign and magnitude, so that a sum depends on its order.
Bytes InputOf(const Case& c, int member);
Bytes InputSlice(const Case& c, int member, int64_t begin, int64_t count);

// What a member must get, to the bit where elements are combined along the tree over the members.
Bytes OutputOf(const Case& c, int member);

// In which order a backend combines elements, and how often it rounds on the way.
enum class Arithmetic { kTree, kAnyOrder };

// Whether a member may have got `actual`: OutputOf, or, in any order, what rounding leaves of it.
bool Agrees(const Case& c, int member, const Bytes& actual, Arithmetic arithmetic);

}  // namespace lockstep
