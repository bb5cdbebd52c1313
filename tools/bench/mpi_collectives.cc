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
#include "absl/strings/str_cat.h"
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
      break;
  }
  LOG(FATAL) << Name(dtype) << " is not timed";
  return MPI_DATATYPE_NULL;
}

// The call of MPI for each operation. Open MPI ends the program at its errors.
class MpiCalls final : public RankCalls {
 public:
  explicit MpiCalls(int rank) : rank_(rank) {}

  int rank() const override { return rank_; }

  absl::Status Run(const TimedCall& call, const CallTensors& tensors) override {
    const MPI_Datatype type = TypeOf(call.dtype);
    const int whole = static_cast<int>(call.elements);
    const int part = static_cast<int>(call.part());
    const bool root = rank_ == kRoot;
    const void* const input = tensors.input.raw();
    void* const output = tensors.output.raw();
    // Where outputs lie in inputs, MPI wants one of the two left out.
    const void* const from = call.in_place ? MPI_IN_PLACE : input;
    const MPI_Comm comm = MPI_COMM_WORLD;
    switch (call.operation) {
      case Operation::kAllReduce:
        MPI_Allreduce(from, output, whole, type, MPI_SUM, comm);
        break;
      case Operation::kReduceScatter:
        MPI_Reduce_scatter_block(from, output, part, type, MPI_SUM, comm);
        break;
      case Operation::kAllGather:
        MPI_Allgather(from, part, type, output, part, type, comm);
        break;
      case Operation::kBroadcast:
        MPI_Bcast(tensors.input.raw(), whole, type, kRoot, comm);
        break;
      case Operation::kReduce:
        MPI_Reduce(root ? from : input, output, whole, type, MPI_SUM, kRoot, comm);
        break;
      case Operation::kGather:
        MPI_Gather(root ? from : input, part, type, output, part, type, kRoot, comm);
        break;
      case Operation::kScatter:
        MPI_Scatter(input, part, type, root && call.in_place ? MPI_IN_PLACE : output, part, type,
                    kRoot, comm);
        break;
      case Operation::kAllToAll:
        MPI_Alltoall(from, part, type, output, part, type, comm);
        break;
      case Operation::kSend: {
        const int n = call.ranks;
        MPI_Sendrecv(input, whole, type, (rank_ + 1) % n, kTag, output, whole, type,
                     (rank_ + n - 1) % n, kTag, comm, MPI_STATUS_IGNORE);
        break;
      }
      case Operation::kRecv:
      case Operation::kBarrier:
      case Operation::kSplit:
        LOG(FATAL) << Name(call.operation) << " is not timed";
    }
    return absl::OkStatus();
  }

  absl::Status Barrier() override {
    MPI_Barrier(MPI_COMM_WORLD);
    return absl::OkStatus();
  }

  absl::StatusOr<double> Max(double value) override {
    double most = 0;
    MPI_Allreduce(&value, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
  }

 private:
  const int rank_;
};

// As TensorsOf; but in place, MPI puts the output of a reduce-scatter at the head of the input.
CallTensors MpiTensorsOf(const TimedCall& call, int rank, const RankMemory& memory) {
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
    return absl::InvalidArgumentError(absl::StrCat("--ranks must be the ", ranks, " of mpirun"));
  }
  const std::vector<TimedCall> calls = CallsOf(sweep, ranks);
  if (MostElements(calls) > std::numeric_limits<int>::max()) {
    return absl::InvalidArgumentError("MPI counts elements in 31 bits: --max_bytes is too large");
  }
  CpuAllocator allocator;
  const RankMemory memory = MakeRankMemory(allocator, sweep.dtype, MostElements(calls));
  MpiCalls mpi(rank);
  for (const TimedCall& call : calls) {
    LS_ASSIGN_OR_RETURN(
        const double seconds,
        CheckAndTimeCall(call, MpiTensorsOf(call, rank, memory), sweep.seconds, mpi));
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
