// Memory of one emulated GPU in the hands of another. All of it comes from pools, as the backend's
// does: these give access by cudaMemPoolSetAccess, where the GPUs are peers, and not by
// cudaDeviceEnablePeerAccess ("Stream-Ordered Memory Allocator" in CUDA's Programming Guide).

#include <cstdint>
#include <cstdlib>

#include "core/cuda/emulation/mistakes.h"
#include "core/cuda/emulation/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::emulation {
namespace {

using PeersTest = EmulationTest;

// A pool of GPU 1, and a block of it that is 1 all over.
class Peer {
 public:
  Peer() : gpu_(1) {
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location = {cudaMemLocationTypeDevice, 1};
    EXPECT_EQ(cudaMemPoolCreate(&pool_, &properties), cudaSuccess);
    void* block = nullptr;
    EXPECT_EQ(cudaMallocFromPoolAsync(&block, kElements * sizeof(float), pool_, gpu_.stream()),
              cudaSuccess);
    block_ = static_cast<float*>(block);
    FillElements(gpu_.stream(), block_, kElements, 1);
    cudaStreamSynchronize(gpu_.stream());
  }
  ~Peer() { cudaMemPoolDestroy(pool_); }

  float* block() const { return block_; }
  cudaError_t SetAccess(int gpu, cudaMemAccessFlags flags) const {
    const cudaMemAccessDesc access = {{cudaMemLocationTypeDevice, gpu}, flags};
    return cudaMemPoolSetAccess(pool_, &access, 1);
  }

 private:
  const Gpu gpu_;
  cudaMemPool_t pool_ = nullptr;
  float* block_ = nullptr;
};

constexpr size_t kBytes = kElements * sizeof(float);

TEST_F(PeersTest, AKernelWithoutAccess) {
  ExpectFound<cudaError_t>(
      [] {
        const Peer peer;
        const Gpu gpu(0);
        FillElements(gpu.stream(), peer.block(), kElements, 3);
        return cudaStreamSynchronize(gpu.stream());
      },
      cudaErrorIllegalAddress, "FillKernel.*in memory of GPU 1, whose pool GPU 0 has no access to");
}

TEST_F(PeersTest, AKernelWithAccess) {
  const Peer peer;
  ASSERT_EQ(peer.SetAccess(0, cudaMemAccessFlagsProtReadWrite), cudaSuccess);
  const Gpu gpu(0);
  FillElements(gpu.stream(), peer.block(), kElements, 3);
  EXPECT_THAT(gpu.Read(peer.block(), kElements), testing::Each(3));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(PeersTest, AccessBehindABlock) {
  ExpectFound<cudaError_t>(
      [] {
        const Peer peer;
        peer.SetAccess(0, cudaMemAccessFlagsProtReadWrite);
        const Gpu gpu(0);
        FillElements(gpu.stream(), peer.block(), kElements + 1, 3);
        return cudaStreamSynchronize(gpu.stream());
      },
      cudaErrorIllegalAddress, "FillKernel.*up to byte 4004 of a block of 4000 bytes");
}

TEST_F(PeersTest, AccessThatWasWithdrawn) {
  ExpectFound<cudaError_t>(
      [] {
        const Peer peer;
        peer.SetAccess(0, cudaMemAccessFlagsProtReadWrite);
        const Gpu gpu(0);
        FillElements(gpu.stream(), peer.block(), kElements, 3);
        if (cudaStreamSynchronize(gpu.stream()) != cudaSuccess) return cudaErrorInvalidValue;
        peer.SetAccess(0, cudaMemAccessFlagsProtNone);
        FillElements(gpu.stream(), peer.block(), kElements, 3);
        return cudaStreamSynchronize(gpu.stream());
      },
      cudaErrorIllegalAddress, "FillKernel.*in memory of GPU 1");
}

// What opens memory of cudaMalloc opens no pool.
TEST_F(PeersTest, EnabledPeerAccessIsNotThePools) {
  ExpectFound<cudaError_t>(
      [] {
        const Peer peer;
        const Gpu gpu(0);
        if (cudaDeviceEnablePeerAccess(1, 0) != cudaSuccess) return cudaErrorInvalidValue;
        FillElements(gpu.stream(), peer.block(), kElements, 3);
        return cudaStreamSynchronize(gpu.stream());
      },
      cudaErrorIllegalAddress, "FillKernel.*in memory of GPU 1");
}

TEST_F(PeersTest, PeerAccessIsEnabledOnce) {
  cudaSetDevice(0);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(4, 0), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaSuccess);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
  cudaSetDevice(1);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaSuccess);
}

// A copy runs on one GPU, its stream's.
TEST_F(PeersTest, ACopyWithoutAccess) {
  ExpectFound<cudaError_t>(
      [] {
        const Peer peer;
        const Gpu gpu(0);
        cudaMemcpyAsync(gpu.Floats(kElements), peer.block(), kBytes, cudaMemcpyDeviceToDevice,
                        gpu.stream());
        return cudaStreamSynchronize(gpu.stream());
      },
      cudaErrorIllegalAddress, "cudaMemcpyAsync copies 4000 bytes in memory of GPU 1");
}

TEST_F(PeersTest, ACopyWithAccess) {
  const Peer peer;
  ASSERT_EQ(peer.SetAccess(0, cudaMemAccessFlagsProtReadWrite), cudaSuccess);
  const Gpu gpu(0);
  float* const x = gpu.Floats(kElements);
  EXPECT_EQ(cudaMemcpyAsync(x, peer.block(), kBytes, cudaMemcpyDeviceToDevice, gpu.stream()),
            cudaSuccess);
  EXPECT_THAT(gpu.Read(x, kElements), testing::Each(1));
}

TEST_F(PeersTest, ACopyBetweenPeersNeedsNoAccess) {
  const Peer peer;
  const Gpu gpu(0);
  float* const x = gpu.Floats(kElements);
  EXPECT_EQ(cudaMemcpyPeerAsync(x, 0, peer.block(), 1, kBytes, gpu.stream()), cudaSuccess);
  EXPECT_THAT(gpu.Read(x, kElements), testing::Each(1));
}

TEST_F(PeersTest, ACopyThatNamesAWrongGpu) {
  const Peer peer;
  const Gpu gpu(0);
  EXPECT_EQ(cudaMemcpyPeerAsync(gpu.Floats(kElements), 0, peer.block(), 0, kBytes, gpu.stream()),
            cudaErrorInvalidValue);
}

TEST_F(PeersTest, ACopyBetweenPeersBehindABlock) {
  ExpectFound<cudaError_t>(
      [] {
        const Peer peer;
        const Gpu gpu(0);
        cudaMemcpyPeerAsync(gpu.Floats(2 * kElements), 0, peer.block(), 1, kBytes + 4,
                            gpu.stream());
        return cudaStreamSynchronize(gpu.stream());
      },
      cudaErrorIllegalAddress, "cudaMemcpyPeerAsync copies 4004 bytes up to byte 4004 of a block");
}

TEST_F(PeersTest, AccessThatNoPoolGives) {
  const Peer peer;
  EXPECT_EQ(peer.SetAccess(0, cudaMemAccessFlagsProtRead), cudaErrorInvalidValue);
  EXPECT_EQ(peer.SetAccess(1, cudaMemAccessFlagsProtNone), cudaErrorInvalidValue);
  EXPECT_EQ(peer.SetAccess(4, cudaMemAccessFlagsProtReadWrite), cudaErrorInvalidValue);
}

// Whether GPU 0 reaches GPU 1's memory: as a question, for cudaMalloc's memory and for a pool's.
struct Reach {
  int can_access = -1;
  cudaError_t enabled, pooled;
};
Reach ReachFromGpu0(const char* peers) {
  setenv("LOCKSTEP_EMULATED_PEERS", peers, 1);
  const Peer peer;
  cudaSetDevice(0);
  Reach reach;
  EXPECT_EQ(cudaDeviceCanAccessPeer(&reach.can_access, 0, 1), cudaSuccess);
  reach.enabled = cudaDeviceEnablePeerAccess(1, 0);
  reach.pooled = peer.SetAccess(0, cudaMemAccessFlagsProtReadWrite);
  return reach;
}

TEST_F(PeersTest, GpusThatAreNoPeers) {
  ExpectFound<bool>(
      [] {
        const Reach reach = ReachFromGpu0("1");
        return reach.can_access == 0 && reach.enabled == cudaErrorInvalidDevice &&
               reach.pooled == cudaErrorInvalidDevice;
      },
      true, "cudaMemPoolSetAccess: GPU 0 cannot reach memory of GPU 1");
}

TEST_F(PeersTest, GpusThatArePeersInPairs) {
  ExpectFound<bool>(
      [] {
        const Reach reach = ReachFromGpu0("2");
        int others = -1, across = -1;
        cudaDeviceCanAccessPeer(&others, 3, 2);
        cudaDeviceCanAccessPeer(&across, 1, 2);
        return reach.can_access == 1 && reach.enabled == cudaSuccess &&
               reach.pooled == cudaSuccess && others == 1 && across == 0;
      },
      true, "");
}

// The driver takes the bytes through the host's memory.
TEST_F(PeersTest, ACopyBetweenGpusThatAreNoPeers) {
  ExpectFound<bool>(
      [] {
        setenv("LOCKSTEP_EMULATED_PEERS", "1", 1);
        const Peer peer;
        const Gpu gpu(0);
        float* const x = gpu.Floats(1);
        cudaMemcpyPeerAsync(x, 0, peer.block(), 1, sizeof(float), gpu.stream());
        return gpu.Read(x, 1)[0] == 1;
      },
      true, "");
}

}  // namespace
}  // namespace lockstep::emulation
