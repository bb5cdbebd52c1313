// What the tests of emulated GPUs share.

#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "cuda_runtime_api.h"
#include "gtest/gtest.h"

namespace lockstep::emulation {

constexpr int64_t kElements = 1000;

// The calling thread's GPU with a stream, and memory in the stream's order.
class Gpu {
 public:
  explicit Gpu(int ordinal = 0) {
    cudaSetDevice(ordinal);
    stream_ = NewStream();
  }
  ~Gpu() {
    for (const cudaStream_t stream : streams_) cudaStreamDestroy(stream);
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  cudaStream_t stream() const { return stream_; }
  cudaStream_t NewStream() const {
    cudaStream_t stream = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    streams_.push_back(stream);
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
  mutable std::vector<cudaStream_t> streams_;  // to be destroyed
  cudaStream_t stream_ = nullptr;
};

// Runs `mistake` in a process of its own, since a mistake ends its GPU. Expects the result `error`,
// and a line of the log that matches `message`.
template <typename Error>
void ExpectFound(const std::function<Error()>& mistake, Error error, const std::string& message) {
  EXPECT_EXIT(std::_Exit(mistake() == error ? 0 : 1), testing::ExitedWithCode(0), message);
}

class EmulationTest : public testing::Test {
 protected:
  EmulationTest() { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

}  // namespace lockstep::emulation
