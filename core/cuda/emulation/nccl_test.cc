// What NCCL on emulated GPUs refuses, by the rules of "NCCL User Guide": ranks make the same calls
// in the same order, and kernels of several communicators on one GPU need room together.

#include "nccl.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <vector>

#include "core/cuda/emulation/testing.h"
#include "gtest/gtest.h"

namespace lockstep::emulation {
namespace {

using NcclTest = EmulationTest;

// A communicator of two ranks, whose calls one thread makes.
struct Pair {
  Pair() {
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    for (int rank = 0; rank < 2; ++rank) {
      cudaSetDevice(rank);
      EXPECT_EQ(ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config), ncclInProgress);
    }
  }
  ~Pair() {
    for (ncclComm_t comm : comms) ncclCommDestroy(comm);
  }

  ncclComm_t comms[2] = {};
};

// What a rank calls, with memory of its own of kCount floats.
using Call = std::function<ncclResult_t(float* x, ncclComm_t comm, cudaStream_t stream)>;
constexpr size_t kCount = 8;

Call AllReduce(size_t count, ncclDataType_t type = ncclFloat32, ncclRedOp_t op = ncclSum) {
  return [=](float* x, ncclComm_t comm, cudaStream_t stream) {
    return ncclAllReduce(x, x, count, type, op, comm, stream);
  };
}
Call AllGather() {
  return [](float* x, ncclComm_t comm, cudaStream_t stream) {
    return ncclAllGather(x, x, kCount / 2, ncclFloat32, comm, stream);
  };
}
Call ReduceScatter() {
  return [](float* x, ncclComm_t comm, cudaStream_t stream) {
    return ncclReduceScatter(x, x, kCount / 2, ncclFloat32, ncclSum, comm, stream);
  };
}
Call Broadcast(int root) {
  return [=](float* x, ncclComm_t comm, cudaStream_t stream) {
    return ncclBroadcast(x, x, kCount, ncclFloat32, root, comm, stream);
  };
}
Call Reduce(int root) {
  return [=](float* x, ncclComm_t comm, cudaStream_t stream) {
    return ncclReduce(x, x, kCount, ncclFloat32, ncclSum, root, comm, stream);
  };
}
Call Send(int peer, size_t count = kCount, ncclDataType_t type = ncclFloat32) {
  return [=](float* x, ncclComm_t comm, cudaStream_t stream) {
    return ncclSend(x, count, type, peer, comm, stream);
  };
}
Call Recv(int peer, size_t count = kCount, ncclDataType_t type = ncclFloat32) {
  return [=](float* x, ncclComm_t comm, cudaStream_t stream) {
    return ncclRecv(x, count, type, peer, comm, stream);
  };
}

// Two ranks whose calls contradict each other: the second's is refused, for `message`.
struct Contradiction {
  const char* name;
  Call first, second;
  const char* message;
};

class ContradictionTest : public testing::TestWithParam<Contradiction> {
 protected:
  ContradictionTest() { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

TEST_P(ContradictionTest, IsRefused) {
  ExpectFound<ncclResult_t>(
      [] {
        const Pair pair;
        const Gpu first(0);
        const ncclResult_t called =
            GetParam().first(first.Floats(kCount), pair.comms[0], first.stream());
        if (called != ncclSuccess) return called;
        const Gpu second(1);
        const ncclResult_t refused =
            GetParam().second(second.Floats(kCount), pair.comms[1], second.stream());
        ncclResult_t state = ncclSuccess;  // who asks later hears of it too
        ncclCommGetAsyncError(pair.comms[1], &state);
        return state == refused ? refused : ncclInternalError;
      },
      ncclInvalidUsage, GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Ranks, ContradictionTest,
    testing::Values(
        Contradiction{"Sizes", AllReduce(8), AllReduce(4),
                      "rank 1 calls ncclAllReduce.4 elements.* where another calls "
                      "ncclAllReduce.8 elements"},
        Contradiction{"Types", AllReduce(4), AllReduce(4, ncclBfloat16),
                      "elements of type 9.* where another calls .* elements of type 7"},
        Contradiction{"Operations", AllReduce(4), AllReduce(4, ncclFloat32, ncclMax),
                      "operation 2.* where another calls .* operation 0"},
        Contradiction{"Orders", AllGather(), ReduceScatter(),
                      "calls ncclReduceScatter.* where another calls ncclAllGather"},
        Contradiction{"RootsOfBroadcasts", Broadcast(0), Broadcast(1),
                      "ncclBroadcast.*rank 1.* where another calls ncclBroadcast.*rank 0"},
        Contradiction{"RootsOfReductions", Reduce(1), Reduce(0),
                      "ncclReduce.*rank 0.* where another calls ncclReduce.*rank 1"},
        Contradiction{"SizesOfMessages", Send(1, 8), Recv(0, 4),
                      "calls ncclRecv.4 elements.* where another calls ncclSend.8 elements"},
        Contradiction{"TypesOfMessages", Send(1, 4), Recv(0, 4, ncclInt32),
                      "calls ncclRecv.* of type 2.* where another calls ncclSend.* of type 7"}),
    [](const auto& contradiction) { return contradiction.param.name; });

// The calls of two ranks, one after the other.
bool BothEnd(const std::vector<Call>& of_first, const std::vector<Call>& of_second, bool grouped) {
  const Pair pair;
  std::vector<cudaEvent_t> ends;
  for (int rank = 0; rank < 2; ++rank) {
    const Gpu gpu(rank);
    if (grouped) ncclGroupStart();
    for (const Call& call : rank == 0 ? of_first : of_second) {
      EXPECT_EQ(call(gpu.Floats(kCount), pair.comms[rank], gpu.stream()), ncclSuccess);
    }
    if (grouped) ncclGroupEnd();
    cudaEvent_t end = nullptr;
    cudaEventCreateWithFlags(&end, cudaEventDisableTiming);
    cudaEventRecord(end, gpu.stream());
    ends.push_back(end);
  }
  const auto is_reached = [](cudaEvent_t end) { return cudaEventQuery(end) == cudaSuccess; };
  for (int i = 0; i < 200; ++i) {
    if (std::all_of(ends.begin(), ends.end(), is_reached)) return true;
  }
  return false;
}

TEST_F(NcclTest, CallsInOneOrderEnd) {
  ExpectFound<bool>(
      [] {
        return BothEnd({Send(1), Recv(1)}, {Recv(0), Send(0)}, /*grouped=*/false);
      },
      true, "");
}

// Each waits for the other's second call.
TEST_F(NcclTest, CallsInDifferentOrdersWaitForEver) {
  ExpectFound<bool>(
      [] {
        return BothEnd({Send(1), Recv(1)}, {Send(0), Recv(0)}, /*grouped=*/false);
      },
      false, "");
}

TEST_F(NcclTest, CallsOfOneGroupHaveNoOrder) {
  ExpectFound<bool>(
      [] {
        return BothEnd({Send(1), Recv(1)}, {Send(0), Recv(0)}, /*grouped=*/true);
      },
      true, "");
}

TEST_F(NcclTest, AGroupThatWasNotBegun) { EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage); }

TEST_F(NcclTest, ARankThatDoesNotExist) {
  const Pair pair;
  const Gpu gpu(0);
  EXPECT_EQ(Send(2)(gpu.Floats(kCount), pair.comms[0], gpu.stream()), ncclInvalidArgument);
}

TEST_F(NcclTest, AMissingSetDevice) {
  ExpectFound<ncclResult_t>(
      [] {
        const Pair pair;
        const Gpu other(1);
        float* const x = other.Floats(kCount);
        const Gpu gpu(0);
        return AllReduce(kCount)(x, pair.comms[1], other.stream());
      },
      ncclInvalidUsage, "the calling thread's GPU is 0, the communicator's 1 .cudaSetDevice");
}

TEST_F(NcclTest, AStreamOfAnotherGpu) {
  ExpectFound<ncclResult_t>(
      [] {
        const Pair pair;
        const Gpu other(1), gpu(0);
        return AllReduce(kCount)(gpu.Floats(kCount), pair.comms[0], other.stream());
      },
      ncclInvalidUsage, "the stream is not one of GPU 0, which is the communicator's");
}

TEST_F(NcclTest, ABufferThatIsTooSmall) {
  ExpectFound<cudaError_t>(
      [] {
        const Pair pair;
        for (int rank = 0; rank < 2; ++rank) {
          const Gpu gpu(rank);
          AllReduce(kCount)(gpu.Floats(kCount - 1), pair.comms[rank], gpu.stream());
        }
        cudaSetDevice(0);
        const cudaError_t first = cudaDeviceSynchronize();
        cudaSetDevice(1);
        const cudaError_t second = cudaDeviceSynchronize();
        return first != cudaSuccess ? first : second;
      },
      cudaErrorIllegalAddress, "ncclAllReduce.* reads 32 bytes up to byte 32 of a block of 28");
}

// Lets the GPU come to what is queued on the stream, which may wait for other GPUs.
void LetBegin(cudaStream_t stream) {
  cudaEvent_t end = nullptr;
  cudaEventCreateWithFlags(&end, cudaEventDisableTiming);
  cudaEventRecord(end, stream);
  for (int i = 0; i < 20; ++i) cudaEventQuery(end);
  cudaEventDestroy(end);
}

// Two communicators of the same two GPUs, on two streams of each GPU: `first_of_second` is the one
// that the second GPU's streams come to first. The first GPU's come to communicator 0.
cudaError_t ReduceOverTwoCommunicators(int first_of_second) {
  setenv("LOCKSTEP_EMULATED_NCCL_KERNELS", "1", 1);
  const Pair pairs[2];
  for (int device = 0; device < 2; ++device) {
    const Gpu gpu(device);
    const int first = device == 0 ? 0 : first_of_second;
    for (const int which : {first, 1 - first}) {
      float* const x = gpu.Floats(8);
      cudaStreamSynchronize(gpu.stream());
      const cudaStream_t stream = gpu.NewStream();
      ncclAllReduce(x, x, 8, ncclFloat32, ncclSum, pairs[which].comms[device], stream);
      LetBegin(stream);
    }
  }
  cudaSetDevice(0);
  const cudaError_t first = cudaDeviceSynchronize();
  cudaSetDevice(1);
  const cudaError_t second = cudaDeviceSynchronize();
  return first != cudaSuccess ? first : second;
}

TEST_F(NcclTest, CommunicatorsUsedInOneOrderOnAllGpus) {
  EXPECT_EXIT(std::_Exit(ReduceOverTwoCommunicators(0)), testing::ExitedWithCode(cudaSuccess), "");
}

TEST_F(NcclTest, CommunicatorsUsedAtOnceInDifferentOrders) {
  ExpectFound<cudaError_t>([] { return ReduceOverTwoCommunicators(1); }, cudaErrorLaunchTimeout,
                           "kernels of several NCCL communicators begin in different orders");
}

// Makes a communicator on a GPU on which a kernel of another one waits.
ncclResult_t MakeACommunicatorLate() {
  setenv("LOCKSTEP_EMULATED_NCCL_KERNELS", "1", 1);
  const Pair pair;
  const Gpu gpu(0);
  float* const x = gpu.Floats(8);
  ncclAllReduce(x, x, 8, ncclFloat32, ncclSum, pair.comms[0], gpu.stream());
  LetBegin(gpu.stream());
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t late = nullptr;
  return ncclCommInitRankConfig(&late, 2, id, 0, &config);
}

TEST_F(NcclTest, ACommunicatorMadeWhileAKernelOfNcclWaits) {
  EXPECT_EXIT(std::_Exit(MakeACommunicatorLate()), testing::ExitedWithCode(ncclInvalidUsage),
              "made while a kernel of NCCL waits on GPU 0");
}

TEST_F(NcclTest, TwoRanksOnOneGpu) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  cudaSetDevice(0);
  ncclComm_t comms[2] = {};
  EXPECT_EQ(ncclCommInitRankConfig(&comms[0], 2, id, 0, &config), ncclInProgress);
  EXPECT_EQ(ncclCommInitRankConfig(&comms[1], 2, id, 1, &config), ncclInvalidUsage);
  for (ncclComm_t comm : comms) ncclCommDestroy(comm);
}

// The result of a second rank that joins after one of a communicator of two on GPU 0.
ncclResult_t JoinSecond(int ranks, int rank, int device) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comms[2] = {};
  cudaSetDevice(0);
  EXPECT_EQ(ncclCommInitRankConfig(&comms[0], 2, id, 0, &config), ncclInProgress);
  cudaSetDevice(device);
  const ncclResult_t joined = ncclCommInitRankConfig(&comms[1], ranks, id, rank, &config);
  for (ncclComm_t comm : comms) ncclCommDestroy(comm);
  return joined;
}

TEST_F(NcclTest, ARankThatJoinsTwice) {
  ExpectFound<ncclResult_t>([] { return JoinSecond(2, 0, 1); }, ncclInvalidUsage,
                            "a rank that joins twice");
}

TEST_F(NcclTest, RanksThatNameDifferentSizes) {
  ExpectFound<ncclResult_t>([] { return JoinSecond(3, 1, 1); }, ncclInvalidUsage,
                            "ranks that name different sizes of a communicator");
}

TEST_F(NcclTest, ARankBeyondTheLast) { EXPECT_EQ(JoinSecond(2, 2, 1), ncclInvalidArgument); }

}  // namespace
}  // namespace lockstep::emulation
