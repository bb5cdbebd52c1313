#pragma once

#include <cstddef>
#include <cstdint>

#include "core/comm/device/device_stream.h"
#include "cuda_runtime_api.h"

namespace lockstep::cuda {

// A place in the order of a stream: an event.
class GpuMark final : public DeviceMark {
 public:
  // The place that has been reached on the stream, of the calling thread's GPU.
  explicit GpuMark(cudaStream_t stream);
  ~GpuMark() override;

  // What is queued on the stream from now on waits for this.
  void HoldBack(cudaStream_t stream) const;
  // Whether the GPU has come by.
  bool IsReached() const;

 private:
  cudaEvent_t event_ = nullptr;
};

// A stream of a GPU that is there for communication. Where both have work, it goes before that of
// the streams that compute: whoever waits for communication waits for it alone.
class GpuStream final : public DeviceStream {
 public:
  explicit GpuStream(int ordinal);
  // Waits for what is queued.
  ~GpuStream() override;
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;

  // For the calling thread's next calls of CUDA or NCCL.
  void MakeCurrent() const;
  cudaStream_t get() const { return stream_; }

  void Await(const DeviceMark& mark) override;
  DeviceMarkPtr Mark() override;
  void Copy(std::byte* to, const std::byte* from, int64_t bytes) override;
  void Reduce(DType dtype, ReduceOp op, absl::Span<const std::byte* const> inputs,
              absl::Span<std::byte* const> outputs, int64_t begin, int64_t end) override;
  void Swap(std::byte* one, std::byte* other, int64_t bytes) override;

 private:
  const int ordinal_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace lockstep::cuda
