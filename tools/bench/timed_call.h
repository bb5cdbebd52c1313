// The calls that are timed: sizes, the factors of their bandwidths, and the bytes that must move.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/comm/operation.h"
#include "core/tensor/dtype.h"

namespace lockstep {

// All operations that are timed, in the order of tables. kSend stands for what nccl-tests calls
// sendrecv: every rank sends to the next one and receives from the one before, at the same time.
const std::vector<Operation>& TimedOperations();

// "all_reduce", ..., and "send_recv" for kSend.
std::string TimedName(Operation operation);
// The operation or dtype of that name; an error lists those there are.
absl::StatusOr<Operation> TimedOperation(const std::string& name);
absl::StatusOr<DType> TimedDType(const std::string& name);

// Whether the payload is made of a part for each rank.
bool HasParts(Operation operation);

// One call, the same on all ranks. Rank 0 is the root where there is one; reductions are sums.
struct TimedCall {
  Operation operation = Operation::kAllReduce;
  DType dtype = DType::kF32;
  int ranks = 2;
  // Elements of the payload, which is nccl-tests' size: what one rank puts into an all-reduce,
  // broadcast, reduce, all-to-all or send, and the parts of all ranks together elsewhere.
  int64_t elements = 0;
  // As Communicator has it for each operation; a send_recv is never in place.
  bool in_place = false;

  int64_t bytes() const { return elements * SizeOf(dtype); }
  int64_t part() const { return elements / ranks; }  // elements of a rank's part
};

// The call whose payload is `bytes`, rounded up so that every rank has an equal part of at least
// one element; of whole cache lines in place, where parts are tensors that begin within others.
TimedCall CallOfSize(Operation operation, DType dtype, int ranks, int64_t bytes, bool in_place);

// What a payload's bytes by the time (the algorithm bandwidth) are multiplied with to give the bus
// bandwidth: what each rank's link carries in the best algorithm of a network that has one link a
// rank. Source: doc/PERFORMANCE.md of nccl-tests, and its gather.cu, scatter.cu and sendrecv.cu.
double BusFactor(Operation operation, int ranks);

// What memory must do at least for a call, whatever the algorithm, where all ranks can reach all
// memory: every input is read once and every output is written once, and what is in its place stays
// there. The ranks share the work evenly: each reads `reads` streams of `stream_bytes` bytes and
// writes `writes` of them.
struct Traffic {
  int reads = 0;
  int writes = 0;
  int64_t stream_bytes = 0;
  bool in_place = false;  // what is written overwrites what is read
};
Traffic LeastTraffic(const TimedCall& call);

}  // namespace lockstep
