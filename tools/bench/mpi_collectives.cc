// Times Open MPI's own collectives, without any of Lockstep's, for tools/bench/collectives.cc,
// which starts it:
//
//   mpirun -n 2 mpi_collectives --ranks=2
//
// Rank 0 prints a line for each call (mpi_peer.h). Memory, values, checks and the loop that takes
// the time are those of the other side.

#include <mpi.h>

#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "core/tensor/allocator.h"
#include "glog/logging.h"
#include "tools/bench/call_timing.h"
#include "tools/bench/mpi_peer.h"
#include "tools/bench/sweep.h"

namespace lockstep {
namespace {

constexpr int kRoot = 0;
constexpr int kTag = 0;

MPI_Datatype TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return MPI_FLOAT;
    case DType::kF64:
      return MPI_DOUBLE;
    case DType::kI32:
      return MPI_INT32_T;
    case DType::kI64:
      return MPI_INT64_T;
    default:  // TimedDType lets none through
      LOG(FATAL) << Name(dtype) << " is not timed";
  }
}

// Makes the call of MPI for each operation. Returns its code, which says nothing: Open MPI ends the
// program at its errors.
int CallMpi(const TimedCall& call, int rank, const CallTensors& tensors) {
  const MPI_Datatype type = TypeOf(call.dtype);
  const int whole = static_cast<int>(call.elements);
  const int part = static_cast<int>(call.part());
  const bool root = rank == kRoot;
  const void* const input = tensors.input.raw();
  void* const output = tensors.output.raw();
  // Where outputs lie in inputs, MPI wants one of the two left out.
  const void* const from = call.in_place ? MPI_IN_PLACE : input;
  const MPI_Comm comm = MPI_COMM_WORLD;
  switch (call.operation) {
    case Operation::kAllReduce:
      return MPI_Allreduce(from, output, whole, type, MPI_SUM, comm);
    case Operation::kReduceScatter:
      return MPI_Reduce_scatter_block(from, output, part, type, MPI_SUM, comm);
    case Operation::kAllGather:
      return MPI_Allgather(from, part, type, output, part, type, comm);
    case Operation::kBroadcast:
      return MPI_Bcast(tensors.input.raw(), whole, type, kRoot, comm);
    case Operation::kReduce:
      return MPI_Reduce(root ? from : input, output, whole, type, MPI_SUM, kRoot, comm);
    case Operation::kGather:
      return MPI_Gather(root ? from : input, part, type, output, part, type, kRoot, comm);
    case Operation::kScatter:
      return MPI_Scatter(input, part, type, root && call.in_place ? MPI_IN_PLACE : output, part,
                         type, kRoot, comm);
    case Operation::kAllToAll:
      return MPI_Alltoall(from, part, type, output, part, type, comm);
    case Operation::kSend: {
      const int n = call.ranks;
      return MPI_Sendrecv(input, whole, type, (rank + 1) % n, kTag, output, whole, type,
                          (rank + n - 1) % n, kTag, comm, MPI_STATUS_IGNORE);
    }
    default:
      LOG(FATAL) << Name(call.operation) << " is not timed";
  }
}

absl::StatusOr<double> MaxOverMpi(double value) {
  double most = 0;
  MPI_Allreduce(&value, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return most;
}

// As TensorsOf; but in place, MPI puts the output of a reduce-scatter at the head of the input.
CallTensors MpiTensorsOf(const TimedCall& call, int rank, const CallTensors& memory) {
  CallTensors tensors = TensorsOf(call, rank, memory);
  if (call.operation == Operation::kReduceScatter && call.in_place) {
    tensors.output = tensors.input.View(0, {call.part()});
  }
  return tensors;
}

absl::Status RunSweep() {
  LS_ASSIGN_OR_RETURN(const Sweep sweep, SweepFromFlags());
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (sweep.ranks != std::vector<int>{ranks}) {
    return InvalidArgument("--ranks must be the ", ranks, " of mpirun");
  }
  const std::vector<TimedCall> calls = CallsOf(sweep, ranks);
  if (MostElements(calls) > std::numeric_limits<int>::max()) {
    return absl::InvalidArgumentError("MPI counts elements in 31 bits: --max_bytes is too large");
  }
  CpuAllocator allocator;
  const CallTensors memory = MakeRankMemory(allocator, sweep.dtype, MostElements(calls));
  for (const TimedCall& call : calls) {
    const CallTensors tensors = MpiTensorsOf(call, rank, memory);
    const auto run = [&] {
      CallMpi(call, rank, tensors);
      return absl::OkStatus();
    };
    LS_ASSIGN_OR_RETURN(const double seconds,
                        CheckAndTimeCall(call, rank, tensors, run, sweep.seconds, MaxOverMpi));
    if (rank == 0) std::puts(MpiTimesLine(call, seconds).c_str());
  }
  return absl::OkStatus();
}

// Ends with MPI, or ends all ranks.
int RunMain() {
  MPI_Init(nullptr, nullptr);
  absl::Status status;
  try {
    status = RunSweep();
  } catch (const StatusException& exception) {
    status = exception.status();
  }
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage = "Times Open MPI's collectives, for //tools/bench:collectives, under mpirun.",
       .files = {lockstep::kSweepFlagsFile}},
      [](const auto&) { return lockstep::RunMain(); });
}
