// What emulated GPUs refuse of kernels, memory and streams: each of these mistakes passes a
// compiler, and most of them pass on a GPU as well, most of the time.

#include <sys/wait.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "core/cuda/emulation/mistakes.h"
#include "core/cuda/emulation/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::emulation {
namespace {

TEST_F(EmulationTest, AKernelComputes) {
  const Gpu gpu;
  float* const x = gpu.Floats(kElements);
  FillElements(gpu.stream(), x, kElements, 3);
  EXPECT_THAT(gpu.Read(x, kElements), testing::Each(3));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(EmulationTest, MemoryStartsAsNan) {
  const Gpu gpu;
  EXPECT_THAT(gpu.Read(gpu.Floats(kElements), kElements), testing::Each(testing::IsNan()));
}

TEST_F(EmulationTest, SharedMemoryStartsAsNan) {
  const Gpu gpu;
  float* const x = gpu.Floats(1);
  UseShared(gpu.stream(), x, /*written=*/3, /*read=*/4);
  EXPECT_THAT(gpu.Read(x, 1), testing::Each(testing::IsNan()));
}

TEST_F(EmulationTest, PageLockedMemoryStartsAsNan) {
  void* block = nullptr;
  ASSERT_EQ(cudaMallocHost(&block, sizeof(float)), cudaSuccess);
  EXPECT_THAT(*static_cast<float*>(block), testing::IsNan());
  EXPECT_EQ(cudaFreeHost(block), cudaSuccess);
}

TEST_F(EmulationTest, AGridTooSmallLeavesNan) {
  const Gpu gpu;
  float* const x = gpu.Floats(kElements);
  FillElements(gpu.stream(), x, kElements - 300, 3);
  EXPECT_THAT(gpu.Read(x, kElements), testing::Contains(testing::IsNan()));
}

TEST_F(EmulationTest, AnAccessBehindABlock) {
  ExpectFound<cudaError_t>(
      [] {
        const Gpu gpu;
        FillElements(gpu.stream(), gpu.Floats(kElements), kElements + 1, 3);
        return cudaStreamSynchronize(gpu.stream());
      },
      cudaErrorIllegalAddress, "FillKernel.*thread .*writes 4 bytes up to byte 4004 of a block");
}

TEST_F(EmulationTest, AnAccessBehindSharedMemory) {
  ExpectFound<cudaError_t>(
      [] {
        const Gpu gpu;
        UseShared(gpu.stream(), gpu.Floats(1), kSharedElements, 0);
        return cudaStreamSynchronize(gpu.stream());
      },
      cudaErrorIllegalAddress, "SharedKernel.*writes bytes 256 to 260 of shared memory");
}

TEST_F(EmulationTest, ACopyBehindABlock) {
  ExpectFound<cudaError_t>(
      [] {
        const Gpu gpu;
        float *const from = gpu.Floats(kElements), *const to = gpu.Floats(kElements - 1);
        cudaMemcpyAsync(to, from, kElements * sizeof(float), cudaMemcpyDeviceToDevice,
                        gpu.stream());
        return cudaStreamSynchronize(gpu.stream());
      },
      cudaErrorIllegalAddress, "cudaMemcpyAsync copies 4000 bytes up to byte 4000 of a block");
}

TEST_F(EmulationTest, AMemsetBehindABlock) {
  ExpectFound<cudaError_t>(
      [] {
        const Gpu gpu;
        cudaMemsetAsync(gpu.Floats(1), 0, 5, gpu.stream());
        return cudaStreamSynchronize(gpu.stream());
      },
      cudaErrorIllegalAddress, "cudaMemsetAsync writes 5 bytes up to byte 5 of a block of 4");
}

TEST_F(EmulationTest, ACopyInTheWrongDirection) {
  const Gpu gpu;
  float host = 0;
  EXPECT_EQ(
      cudaMemcpyAsync(gpu.Floats(1), &host, sizeof(host), cudaMemcpyDeviceToHost, gpu.stream()),
      cudaErrorInvalidValue);
}

TEST_F(EmulationTest, ABlockThatIsFreedTwice) {
  const Gpu gpu;
  float* const x = gpu.Floats(1);
  EXPECT_EQ(cudaFreeAsync(x, gpu.stream()), cudaSuccess);
  cudaStreamSynchronize(gpu.stream());
  EXPECT_EQ(cudaFreeAsync(x, gpu.stream()), cudaErrorInvalidValue);
}

// Nothing runs before somebody waits, and then the other stream alone.
TEST_F(EmulationTest, ABlockBeforeItsStreamHasAllocatedIt) {
  ExpectFound<cudaError_t>(
      [] {
        const Gpu gpu;
        for (int tries = 0; tries < 100 && cudaGetLastError() == cudaSuccess; ++tries) {
          const cudaStream_t other = gpu.NewStream();
          FillElements(other, gpu.Floats(kElements), kElements, 3);
          cudaStreamSynchronize(other);
        }
        return cudaStreamSynchronize(gpu.stream());
      },
      cudaErrorIllegalAddress,
      "FillKernel.*in a block whose allocation its stream has not come to");
}

TEST_F(EmulationTest, AStalePointer) {
  ExpectFound<cudaError_t>(
      [] {
        const Gpu gpu;
        float* const x = gpu.Floats(kElements);
        cudaFreeAsync(x, gpu.stream());
        FillElements(gpu.stream(), x, kElements, 3);
        return cudaStreamSynchronize(gpu.stream());
      },
      cudaErrorIllegalAddress, "FillKernel.*in a block that was freed");
}

TEST_F(EmulationTest, MemoryOfTheHost) {
  ExpectFound<cudaError_t>(
      [] {
        const Gpu gpu;
        std::vector<float> host(kElements);
        FillElements(gpu.stream(), host.data(), kElements, 3);
        return cudaStreamSynchronize(gpu.stream());
      },
      cudaErrorIllegalAddress, "memory of the host that is not page-locked");
}

TEST_F(EmulationTest, AnUnalignedVector) {
  ExpectFound<cudaError_t>(
      [] {
        const Gpu gpu;
        CopyVectors(gpu.stream(), gpu.Floats(kElements) + 1, gpu.Floats(kElements), 4);
        return cudaStreamSynchronize(gpu.stream());
      },
      cudaErrorMisalignedAddress, "VectorKernel.*reads 16 bytes at .*, no multiple of 16");
}

TEST_F(EmulationTest, ABarrierThatIsMissing) {
  ExpectFound<cudaError_t>(
      [] {
        const Gpu gpu;
        Reverse(gpu.stream(), gpu.Floats(256), Barrier::kMissing);
        return cudaStreamSynchronize(gpu.stream());
      },
      cudaErrorIllegalAddress, "ReverseKernel.*no barrier since");
}

TEST_F(EmulationTest, ABarrierOfTheWarpThatIsMissing) {
  ExpectFound<cudaError_t>(
      [] {
        const Gpu gpu;
        SwapLanes(gpu.stream(), gpu.Floats(256), /*synchronizes=*/false);
        return cudaStreamSynchronize(gpu.stream());
      },
      cudaErrorIllegalAddress, "SwapKernel.*no barrier since");
}

TEST_F(EmulationTest, WithABarrierOfTheWarpTheKernelIsRight) {
  const Gpu gpu;
  float* const x = gpu.Floats(256);
  SwapLanes(gpu.stream(), x, /*synchronizes=*/true);
  const std::vector<float> swapped = gpu.Read(x, 256);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(swapped[static_cast<size_t>(i)], i ^ 1);
}

TEST_F(EmulationTest, AShuffleWithALaneThatIsNotInTheMask) {
  ExpectFound<cudaError_t>(
      [] {
        const Gpu gpu;
        ShuffleLanes(gpu.stream(), gpu.Floats(32), 0x7);
        return cudaStreamSynchronize(gpu.stream());
      },
      cudaErrorLaunchFailure, "ShuffleKernel.*shuffles with lane 3, which is not in the mask");
}

TEST_F(EmulationTest, AShuffleOfSomeLanes) {
  const Gpu gpu;
  float* const x = gpu.Floats(32);
  FillElements(gpu.stream(), x, 32, 5);
  ShuffleLanes(gpu.stream(), x, 0xff);
  EXPECT_THAT(gpu.Read(x, 32), testing::Each(5));
}

TEST_F(EmulationTest, ABarrierThatSomeThreadsDoNotReach) {
  ExpectFound<cudaError_t>(
      [] {
        const Gpu gpu;
        Reverse(gpu.stream(), gpu.Floats(256), Barrier::kAwaitsTheWarp);
        return cudaStreamSynchronize(gpu.stream());
      },
      cudaErrorLaunchTimeout, "ReverseKernel.*waits for threads of its warp that never come");
}

TEST_F(EmulationTest, WithItsBarrierTheKernelIsRight) {
  const Gpu gpu;
  float* const x = gpu.Floats(256);
  Reverse(gpu.stream(), x, Barrier::kWhole);
  const std::vector<float> reversed = gpu.Read(x, 256);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(reversed[static_cast<size_t>(i)], 255 - i);
}

// What an asynchronous copy of a 5 leaves, read before or after the thread waits.
float CopiedOverShared(CopyWait wait) {
  const Gpu gpu;
  float *const x = gpu.Floats(1), *const y = gpu.Floats(1);
  FillElements(gpu.stream(), x, 1, 5);
  CopyOverShared(gpu.stream(), x, y, wait);
  return gpu.Read(y, 1)[0];
}

TEST_F(EmulationTest, AnAsynchronousCopyIsThereOnceItIsAwaited) {
  EXPECT_EQ(CopiedOverShared(CopyWait::kBeforeUse), 5);
  EXPECT_THAT(CopiedOverShared(CopyWait::kAfterUse), testing::IsNan());
}

TEST_F(EmulationTest, AnAsynchronousCopyThatNobodyAwaits) {
  ExpectFound<cudaError_t>(
      [] {
        CopiedOverShared(CopyWait::kNever);
        return cudaDeviceSynchronize();
      },
      cudaErrorLaunchFailure, "AsyncCopyKernel.*ends with a copy to shared memory on its way");
}

TEST_F(EmulationTest, AMissingSetDevice) {
  const Gpu other(1), gpu(0);
  FillElements(other.stream(), other.Floats(kElements), kElements, 3);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
}

TEST_F(EmulationTest, AMissingSetDeviceOfACopy) {
  const Gpu other(1), gpu(0);
  float* const x = other.Floats(2);
  EXPECT_EQ(cudaMemcpyAsync(x, x + 1, sizeof(float), cudaMemcpyDeviceToDevice, other.stream()),
            cudaErrorInvalidResourceHandle);
}

TEST_F(EmulationTest, AnEventOfAnotherGpu) {
  const Gpu other(1);
  cudaEvent_t event = nullptr;
  EXPECT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  const Gpu gpu(0);
  EXPECT_EQ(cudaEventRecord(event, gpu.stream()), cudaErrorInvalidResourceHandle);
  cudaEventDestroy(event);
}

TEST_F(EmulationTest, TooMuchSharedMemory) {
  const Gpu gpu;
  Reverse(gpu.stream(), gpu.Floats(256), Barrier::kWhole, 64 << 10);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

TEST_F(EmulationTest, TooManyBytesOfArguments) {
  const Gpu gpu;
  PassLargeArgument(gpu.stream(), LargeArgument(), gpu.Floats(1));
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

TEST_F(EmulationTest, AGridThatCudaCutsOff) {
  const Gpu gpu;
  FillElements(gpu.stream(), gpu.Floats(kElements), int64_t{1} << 41, 3);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
}

// Two streams, one of which fills what the other reads: how often the reader comes too early in
// `tries` tries.
int TooEarly(int tries, bool waits) {
  const Gpu gpu;
  const cudaStream_t reader = gpu.NewStream();
  cudaEvent_t filled = nullptr;
  cudaEventCreateWithFlags(&filled, cudaEventDisableTiming);
  int early = 0;
  for (int i = 0; i < tries; ++i) {
    float* const x = gpu.Floats(kElements);
    FillElements(gpu.stream(), x, kElements, 1);
    cudaStreamSynchronize(gpu.stream());
    FillElements(gpu.stream(), x, kElements, 2);
    cudaEventRecord(filled, gpu.stream());
    if (waits) cudaStreamWaitEvent(reader, filled);
    float seen = 0;
    cudaMemcpyAsync(&seen, x, sizeof(seen), cudaMemcpyDeviceToHost, reader);
    early += seen != 2;
    cudaFreeAsync(x, gpu.stream());
    cudaStreamSynchronize(gpu.stream());
  }
  cudaEventDestroy(filled);
  return early;
}

TEST_F(EmulationTest, StreamsKeepNoOrderThatNoEventAsksFor) {
  EXPECT_GT(TooEarly(20, /*waits=*/false), 0);
  EXPECT_EQ(TooEarly(20, /*waits=*/true), 0);
}

// Which of four streams that write one element comes last, with a seed of the order: found out in a
// process of its own, since a process has one seed.
int LastStream(const char* seed) {
  const auto run = [seed] {
    setenv("LOCKSTEP_EMULATED_SEED", seed, 1);
    const Gpu gpu;
    float* const x = gpu.Floats(1);
    cudaStreamSynchronize(gpu.stream());
    for (const float value : {0, 1, 2, 3}) FillElements(gpu.NewStream(), x, 1, value);
    cudaDeviceSynchronize();
    return static_cast<int>(gpu.Read(x, 1)[0]);
  };
  int last = -1;
  const auto note = [&last](int status) {
    last = WEXITSTATUS(status);
    return WIFEXITED(status);
  };
  EXPECT_EXIT(std::_Exit(run()), note, "");
  return last;
}

TEST_F(EmulationTest, TheSeedChoosesTheOrderOfStreams) {
  const int first = LastStream("1");
  EXPECT_EQ(LastStream("1"), first);
  bool differs = false;
  for (const char* seed : {"2", "3", "4", "5", "6", "7", "8"}) differs |= LastStream(seed) != first;
  EXPECT_TRUE(differs);
}

TEST_F(EmulationTest, PageLockedMemoryThatIsUsedAgainTooEarly) {
  const Gpu gpu;
  void* slot = nullptr;
  ASSERT_EQ(cudaMallocHost(&slot, sizeof(float)), cudaSuccess);
  float* const x = gpu.Floats(1);
  int changed = 0;
  for (int i = 0; i < 20; ++i) {
    *static_cast<float*>(slot) = 1;
    cudaMemcpyAsync(x, slot, sizeof(float), cudaMemcpyHostToDevice, gpu.stream());
    *static_cast<float*>(slot) = 2;  // with no event in between
    changed += gpu.Read(x, 1)[0] != 1;
  }
  EXPECT_GT(changed, 0);
  EXPECT_EQ(cudaFreeHost(slot), cudaSuccess);
}

}  // namespace
}  // namespace lockstep::emulation
