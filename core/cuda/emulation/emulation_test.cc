// What emulated GPUs refuse: each of these mistakes passes a compiler, and most of them pass on a
// GPU as well, most of the time. A mistake ends its GPU, so each has a process of its own.

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "core/cuda/emulation/mistakes.h"
#include "cublasLt.h"
#include "cudnn.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nccl.h"

namespace lockstep::emulation {
namespace {

constexpr int64_t kElements = 1000;

// The calling thread's first GPU with a stream, and memory in the stream's order.
class Gpu {
 public:
  explicit Gpu(int ordinal = 0) {
    cudaSetDevice(ordinal);
    stream_ = NewStream();
  }

  cudaStream_t stream() const { return stream_; }
  cudaStream_t NewStream() const {
    cudaStream_t stream = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    return stream;
  }
  float* Floats(int64_t count) const {
    void* block = nullptr;
    EXPECT_EQ(cudaMallocAsync(&block, static_cast<size_t>(count) * sizeof(float), stream_),
              cudaSuccess);
    return static_cast<float*>(block);
  }
  std::vector<float> Read(const float* x, int64_t count) const {
    std::vector<float> host(static_cast<size_t>(count));
    cudaMemcpyAsync(host.data(), x, host.size() * sizeof(float), cudaMemcpyDeviceToHost, stream_);
    return host;
  }

 private:
  cudaStream_t stream_ = nullptr;
};

// Runs `mistake` in a process of its own, which ends with the error that the GPU has then, and
// expects that this is `error` and that `message` says why.
void ExpectFound(const std::function<cudaError_t()>& mistake, cudaError_t error,
                 const std::string& message) {
  EXPECT_EXIT(std::_Exit(mistake() == error ? 0 : 1), testing::ExitedWithCode(0), message);
}

class EmulationTest : public testing::Test {
 protected:
  EmulationTest() { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

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

TEST_F(EmulationTest, AGridTooSmallLeavesNan) {
  const Gpu gpu;
  float* const x = gpu.Floats(kElements);
  FillElements(gpu.stream(), x, kElements - 300, 3);
  EXPECT_THAT(gpu.Read(x, kElements), testing::Contains(testing::IsNan()));
}

TEST_F(EmulationTest, AnAccessBehindABlock) {
  ExpectFound(
      [] {
        const Gpu gpu;
        FillElements(gpu.stream(), gpu.Floats(kElements), kElements + 1, 3);
        return cudaStreamSynchronize(gpu.stream());
      },
      cudaErrorIllegalAddress, "FillKernel.*thread .*writes 4 bytes up to byte 4004 of a block");
}

TEST_F(EmulationTest, AStalePointer) {
  ExpectFound(
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
  ExpectFound(
      [] {
        const Gpu gpu;
        std::vector<float> host(kElements);
        FillElements(gpu.stream(), host.data(), kElements, 3);
        return cudaStreamSynchronize(gpu.stream());
      },
      cudaErrorIllegalAddress, "memory of the host that is not page-locked");
}

TEST_F(EmulationTest, MemoryOfAnotherGpu) {
  ExpectFound(
      [] {
        const Gpu other(1), gpu(0);
        cudaSetDevice(1);
        float* const x = other.Floats(kElements);
        cudaStreamSynchronize(other.stream());
        cudaSetDevice(0);
        FillElements(gpu.stream(), x, kElements, 3);
        return cudaStreamSynchronize(gpu.stream());
      },
      cudaErrorIllegalAddress, "FillKernel.*in memory of GPU 1");
}

TEST_F(EmulationTest, AnUnalignedVector) {
  ExpectFound(
      [] {
        const Gpu gpu;
        CopyVectors(gpu.stream(), gpu.Floats(kElements) + 1, gpu.Floats(kElements), 4);
        return cudaStreamSynchronize(gpu.stream());
      },
      cudaErrorMisalignedAddress, "VectorKernel.*reads 16 bytes at .*, no multiple of 16");
}

TEST_F(EmulationTest, ABarrierThatIsMissing) {
  ExpectFound(
      [] {
        const Gpu gpu;
        Reverse(gpu.stream(), gpu.Floats(256), Barrier::kMissing);
        return cudaStreamSynchronize(gpu.stream());
      },
      cudaErrorIllegalAddress, "ReverseKernel.*no barrier since");
}

TEST_F(EmulationTest, ABarrierThatSomeThreadsDoNotReach) {
  ExpectFound(
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

TEST_F(EmulationTest, AMissingSetDevice) {
  const Gpu other(1), gpu(0);
  FillElements(other.stream(), other.Floats(kElements), kElements, 3);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
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

// A product of two matrices of ones, [m, k] and [k, n], with a leading dimension for the first and
// a factor of what is there already; an element of the result, or the status that the call ends
// with.
struct Product {
  cublasStatus_t status;
  float element;
};
Product ProductOfOnes(int64_t leading, float beta) {
  constexpr int64_t kM = 8, kN = 4, kK = 16;
  const Gpu gpu;
  float *const a = gpu.Floats(kM * kK), *const b = gpu.Floats(kK * kN);
  float* const c = gpu.Floats(kM * kN);
  FillElements(gpu.stream(), a, kM * kK, 1);
  FillElements(gpu.stream(), b, kK * kN, 1);
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t layouts[3] = {};
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtCreate(&handle);
  cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  cublasLtMatrixLayoutCreate(&layouts[0], CUDA_R_32F, kM, kK, leading);
  cublasLtMatrixLayoutCreate(&layouts[1], CUDA_R_32F, kK, kN, kK);
  cublasLtMatrixLayoutCreate(&layouts[2], CUDA_R_32F, kM, kN, kM);
  cublasLtMatmulPreferenceCreate(&preference);
  cublasLtMatmulHeuristicResult_t chosen = {};
  int found = 0;
  cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle, operation, layouts[0], layouts[1], layouts[2],
                                     layouts[2], preference, 1, &chosen, &found);
  if (status == CUBLAS_STATUS_SUCCESS) {
    const float one = 1;
    status = cublasLtMatmul(handle, operation, &one, a, layouts[0], b, layouts[1], &beta, c,
                            layouts[2], c, layouts[2], &chosen.algo, nullptr, 0, gpu.stream());
  }
  cublasLtMatmulPreferenceDestroy(preference);
  for (cublasLtMatrixLayout_t layout : layouts) cublasLtMatrixLayoutDestroy(layout);
  cublasLtMatmulDescDestroy(operation);
  cublasLtDestroy(handle);
  return {status, status == CUBLAS_STATUS_SUCCESS ? gpu.Read(c, 1)[0] : 0};
}

TEST_F(EmulationTest, AProduct) { EXPECT_EQ(ProductOfOnes(8, 0).element, 16); }

TEST_F(EmulationTest, AWrongLeadingDimension) {
  EXPECT_EQ(ProductOfOnes(7, 0).status, CUBLAS_STATUS_NOT_SUPPORTED);
  ExpectFound(
      [] {
        ProductOfOnes(9, 0);
        return cudaDeviceSynchronize();
      },
      cudaErrorIllegalAddress, "cublasLtMatmul reads A, .* of a block of 512 bytes");
}

TEST_F(EmulationTest, AWrongBetaReadsNan) {
  EXPECT_THAT(ProductOfOnes(8, 1).element, testing::IsNan());
}

TEST_F(EmulationTest, TensorsOfOneConvolutionHaveOneType) {
  cudnnTensorDescriptor_t x = nullptr, y = nullptr;
  cudnnFilterDescriptor_t w = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;
  cudnnHandle_t handle = nullptr;
  cudnnCreate(&handle);
  cudnnCreateTensorDescriptor(&x);
  cudnnCreateTensorDescriptor(&y);
  cudnnCreateFilterDescriptor(&w);
  cudnnCreateConvolutionDescriptor(&convolution);
  cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NHWC, CUDNN_DATA_HALF, 1, 3, 8, 8);
  cudnnSetTensor4dDescriptor(y, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 1, 4, 8, 8);
  cudnnSetFilter4dDescriptor(w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC, 4, 3, 3, 3);
  cudnnSetConvolution2dDescriptor(convolution, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                  CUDNN_DATA_FLOAT);
  size_t bytes = 0;
  const auto workspace = [&] {
    return cudnnGetConvolutionForwardWorkspaceSize(
        handle, x, w, convolution, y, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, &bytes);
  };
  EXPECT_EQ(workspace(), CUDNN_STATUS_NOT_SUPPORTED);
  cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 1, 3, 8, 8);
  EXPECT_EQ(workspace(), CUDNN_STATUS_SUCCESS);
  cudnnDestroyConvolutionDescriptor(convolution);
  cudnnDestroyFilterDescriptor(w);
  cudnnDestroyTensorDescriptor(y);
  cudnnDestroyTensorDescriptor(x);
  cudnnDestroy(handle);
}

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

TEST_F(EmulationTest, RanksThatCallCollectivesOfTwoSizes) {
  const Pair pair;
  const Gpu first(0);
  float* const x = first.Floats(8);
  EXPECT_EQ(ncclAllReduce(x, x, 8, ncclFloat32, ncclSum, pair.comms[0], first.stream()),
            ncclSuccess);
  const Gpu second(1);
  float* const y = second.Floats(8);
  EXPECT_EQ(ncclAllReduce(y, y, 4, ncclFloat32, ncclSum, pair.comms[1], second.stream()),
            ncclInvalidUsage);
  // Lets the first rank's go on.
  EXPECT_EQ(ncclAllReduce(y, y, 8, ncclFloat32, ncclSum, pair.comms[1], second.stream()),
            ncclSuccess);
  cudaStreamSynchronize(first.stream());
  cudaStreamSynchronize(second.stream());
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

TEST_F(EmulationTest, CommunicatorsUsedInOneOrderOnAllGpus) {
  EXPECT_EXIT(std::_Exit(ReduceOverTwoCommunicators(0)), testing::ExitedWithCode(cudaSuccess), "");
}

TEST_F(EmulationTest, CommunicatorsUsedAtOnceInDifferentOrders) {
  ExpectFound([] { return ReduceOverTwoCommunicators(1); }, cudaErrorLaunchTimeout,
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

TEST_F(EmulationTest, ACommunicatorMadeWhileAKernelOfNcclWaits) {
  EXPECT_EXIT(std::_Exit(MakeACommunicatorLate()), testing::ExitedWithCode(ncclInvalidUsage),
              "made while a kernel of NCCL waits on GPU 0");
}

TEST_F(EmulationTest, TwoRanksOnOneGpu) {
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

}  // namespace
}  // namespace lockstep::emulation
