#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/comm/operation.h"
#include "core/tensor/device.h"
#include "core/tensor/dtype.h"

namespace lockstep {

// What the members of a group must agree on for a call to mean anything; the backends compare it
// before data moves (contract 6 of the design).
struct Signature {
  Operation operation = Operation::kBarrier;
  DType dtype = DType::kU8;
  ReduceOp reduce_op = ReduceOp::kSum;  // where the operation reduces
  int root = -1;                        // its rank within the group; of send and recv: the peer
  // Elements of the whole payload: what one member contributes to a broadcast, reduce or
  // all-reduce, and the chunks of all members together where the payload is made of chunks.
  int64_t count = 0;
  // Elements of each member's chunk where these differ; empty: `count` divides evenly.
  std::vector<int64_t> counts{};
  // The memory that the payload is in. A device's payload moves on devices (core/comm/device); a
  // host's backend sees that all members make the call, and touches no data.
  DeviceType memory = DeviceType::kCpu;

  friend bool operator==(const Signature&, const Signature&) = default;
};

// A member's chunk of the payload, in elements.
struct Chunk {
  int64_t begin = 0;
  int64_t count = 0;
};
Chunk ChunkOf(const Signature& signature, int size, int rank);

// Bytes of the whole payload. (The size that nccl-tests divides by time for its algorithm
// bandwidth.)
int64_t PayloadBytes(const Signature& signature);

// Bytes of the payload that a host's backend moves: all of them, or none.
int64_t HostBytes(const Signature& signature);

// "f32 x 1024, sum" or "i32 x 10 (3+3+4), root 0": all but the operation and the memory.
std::string DescribeArguments(const Signature& signature);

// Bytes that member `rank` of `size` must send, by the best known algorithms (Thakur, Rabenseifner
// and Gropp, "Optimization of Collective Communication Operations in MPICH", 2005), whatever a
// backend really does. With B bytes of payload and n members:
//
//   all-reduce       2 B (n-1)/n
//   reduce-scatter   B less the own chunk: B (n-1)/n if even
//   all-gather       the own chunk to n-1 others: B (n-1)/n if even
//   all-to-all       B (n-1)/n
//   broadcast        B down a pipelined chain that starts at the root: every rank sends B but the
//                    last of the chain, the one before the root, which sends nothing
//   reduce           B up a pipelined chain that ends at the root: every rank but the root sends B
//   gather           the own chunk, the root nothing
//   scatter          the root sends B less its own chunk, the others nothing
//   send             B; recv, barrier, split: nothing
//
// Not a whole number where B does not divide by n.
double WireBytes(const Signature& signature, int size, int rank);

}  // namespace lockstep
