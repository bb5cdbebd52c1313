#include "core/run/device/rank_device.h"

#include "core/comm/launch.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(RankDeviceTest, OnTheCpuARankTalksThroughTheHostsWorld) {
  const auto devices =
      RankDevices::Create(DeviceType::kCpu, {.ranks = 1000}, WidestInstructionSet());
  ASSERT_TRUE(devices.ok());
  const absl::Status status = RunRanks(2, {}, [&](RankHandle& handle) -> absl::Status {
    const auto device = (*devices)->Make(handle.comm(), {.timeout = std::chrono::seconds(1)});
    EXPECT_TRUE(device.ok());
    EXPECT_EQ((*device)->kernels().device().type, DeviceType::kCpu);
    EXPECT_EQ(&(*device)->world(), &handle.comm());
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace lockstep
