#include "core/train/rank_device.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

TEST(RankDeviceTest, TheCpuTakesAnyNumberOfRanks) {
  EXPECT_TRUE(CheckDevice(DeviceType::kCpu, 1).ok());
  EXPECT_TRUE(CheckDevice(DeviceType::kCpu, 1000).ok());
  const auto device = MakeRankDevice(DeviceType::kCpu);
  ASSERT_TRUE(device.ok());
  EXPECT_EQ((*device)->kernels().device().type, DeviceType::kCpu);
}

// Whatever the program was built with and the machine has: ranks on GPUs have no communicator.
TEST(RankDeviceTest, SeveralRanksOnGpusAreRefused) {
  const absl::Status status = CheckDevice(DeviceType::kCuda, 2);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("--device cpu"));
}

}  // namespace
}  // namespace lockstep
