#include "core/comm/device/device_communicator.h"

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "core/base/status.h"
#include "core/comm/device/shared_device.h"
#include "core/comm/device/testing/made_up_device.h"
#include "core/comm/launch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

// A stream that reports an error when it has queued a copy, which is done late: when `freed` is
// notified, or has not been for a while.
class FailingStream final : public DeviceStream {
 public:
  explicit FailingStream(absl::Notification& freed) : freed_(freed) {}

  void Await(const DeviceMark& mark) override { stream_.Await(mark); }
  DeviceMarkPtr Mark() override { return stream_.Mark(); }
  void Copy(std::byte* to, const std::byte* from, int64_t bytes) override {
    stream_.Queue([this] { freed_.WaitForNotificationWithTimeout(absl::Milliseconds(200)); });
    stream_.Copy(to, from, bytes);
    throw StatusException(absl::InternalError("the device is on fire"));
  }
  void Reduce(DType, ReduceOp, absl::Span<const std::byte* const>, absl::Span<std::byte* const>,
              int64_t, int64_t) override {}
  void Swap(std::byte*, std::byte*, int64_t) override {}

 private:
  absl::Notification& freed_;
  MadeUpStream stream_;
};

class FailingDevice final : public CommDevice {
 public:
  FailingDevice(std::shared_ptr<RoundBoards> boards, absl::Notification& freed)
      : freed_(freed), connector_(std::move(boards)) {}

  MadeUpStream& computes() { return computes_; }

  DeviceMarkPtr Computed() override { return computes_.Mark(); }
  void ComputeAwaits(const DeviceMark& mark) override { computes_.Await(mark); }
  absl::StatusOr<std::unique_ptr<DeviceRoutes>> Connect(Communicator& group) override {
    return connector_.Connect(group.group(),
                              [this] { return std::make_unique<FailingStream>(freed_); });
  }

 private:
  absl::Notification& freed_;
  MadeUpStream computes_;
  SharedDeviceConnector connector_;
};

// What a call had queued when it failed is done later, and reads what the sender sent: its memory
// is given back behind that.
TEST(DeviceCommunicatorTest, MemoryOutlivesWhatAFailedCallHasQueued) {
  const auto boards = std::make_shared<RoundBoards>();
  absl::Notification freed;
  const Bytes sent(4096, std::byte{42});
  const absl::Status status =
      RunRanks(2, {.timeout = absl::Seconds(30)}, [&](RankHandle& handle) -> absl::Status {
        FailingDevice device(boards, freed);
        MadeUpMemory memory(device.computes());
        LS_ASSIGN_OR_RETURN(const auto comm, DeviceCommunicator::Create(handle.comm(), device));
        if (handle.rank() == 1) {
          const Tensor got = memory.Empty(static_cast<int64_t>(sent.size()), DType::kU8);
          absl::Status failed = comm->Recv(got, 0, "activations").Wait();
          EXPECT_EQ(memory.Read(got), sent);
          return failed;
        }
        absl::Status failed =
            comm->Send(memory.TensorOf(sent, DType::kU8), 1, "activations").Wait();
        device.computes().Queue([&] { freed.Notify(); });
        return failed;
      });
  EXPECT_THAT(status.message(), testing::HasSubstr("the device is on fire"));
}

}  // namespace
}  // namespace lockstep
