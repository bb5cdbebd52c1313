// A device as the tests of what moves data on devices have it: its streams are threads that do what
// was queued, later and one after the other, so that what does not wait for what it needs shows.

#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/comm/conformance/test_memory.h"
#include "core/comm/device/comm_device.h"
#include "core/comm/device/shared_device.h"
#include "core/tensor/allocator.h"

namespace lockstep {

// An order of work of its own.
class MadeUpStream final : public DeviceStream {
 public:
  MadeUpStream() : thread_([this] { Run(); }) {}
  // Does what is queued.
  ~MadeUpStream() override;

  void Queue(std::function<void()> work);
  // Waits until all that is queued is done.
  void Finish();

  void Await(const DeviceMark& mark) override;
  DeviceMarkPtr Mark() override;
  void Copy(std::byte* to, const std::byte* from, int64_t bytes) override;
  void Reduce(DType dtype, ReduceOp op, absl::Span<const std::byte* const> inputs,
              absl::Span<std::byte* const> outputs, int64_t begin, int64_t end) override;
  void Swap(std::byte* one, std::byte* other, int64_t bytes) override;

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable queued_;
  std::deque<std::function<void()>> work_;
  bool stop_ = false;
  std::thread thread_;
};

// Memory in the order of a stream: what is freed goes when the stream comes by, overwritten.
class MadeUpMemory final : public TestMemory {
 public:
  explicit MadeUpMemory(MadeUpStream& computes) : computes_(computes), allocator_(computes) {}

  Allocator& allocator() override { return allocator_; }
  void Write(const Bytes& bytes, const Tensor& tensor) override;
  Bytes Read(const Tensor& tensor) override;

 private:
  class StreamAllocator final : public Allocator {
   public:
    explicit StreamAllocator(MadeUpStream& computes) : computes_(computes) {}
    Device device() const override { return {DeviceType::kCuda, 0}; }

   protected:
    void* AllocateBlock(int64_t bytes) override;
    void FreeBlock(void* block, int64_t bytes) override;

   private:
    MadeUpStream& computes_;
  };

  MadeUpStream& computes_;
  StreamAllocator allocator_;
};

// A rank's view of it, which it shares with the ranks of the same boards.
class MadeUpDevice final : public CommDevice {
 public:
  enum class Computes {
    kOnAStream,       // computes()
    kInRanksThreads,  // which wait where the stream would
  };
  explicit MadeUpDevice(std::shared_ptr<RoundBoards> boards, Computes where = Computes::kOnAStream)
      : where_(where), connector_(std::move(boards)) {}

  MadeUpStream& computes() { return computes_; }

  DeviceMarkPtr Computed() override { return computes_.Mark(); }
  void ComputeAwaits(const DeviceMark& mark) override;
  absl::StatusOr<std::unique_ptr<DeviceRoutes>> Connect(Communicator& group) override;

 private:
  const Computes where_;
  MadeUpStream computes_;
  SharedDeviceConnector connector_;
};

}  // namespace lockstep
