// What users read where there is no GPU to be had.

#include "core/cuda/device.h"

#include <cstdlib>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string Message(cudaError_t error, int count, int driver, const char* visible = nullptr) {
  const absl::StatusOr<int> devices = JudgeDevices(error, count, driver, visible);
  EXPECT_EQ(devices.status().code(), absl::StatusCode::kUnavailable);
  return std::string(devices.status().message());
}

TEST(DeviceTest, CountsWhatIsThere) {
  EXPECT_EQ(JudgeDevices(cudaSuccess, 3, CUDART_VERSION, nullptr).value(), 3);
}

TEST(DeviceTest, TellsCudaToLoadKernelsAtOnceUnlessTheUserSaysOtherwise) {
  unsetenv("CUDA_MODULE_LOADING");
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8", 1);
  static_cast<void>(CountDevices());
  EXPECT_STREQ(getenv("CUDA_MODULE_LOADING"), "EAGER");
  EXPECT_STREQ(getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "8");
  unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  static_cast<void>(CountDevices());
  EXPECT_STREQ(getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "32");
}

TEST(DeviceTest, NoDriver) {
  EXPECT_THAT(Message(cudaErrorInsufficientDriver, 0, 0),
              AllOf(HasSubstr("no NVIDIA driver"), HasSubstr("--device cpu")));
}

TEST(DeviceTest, OldDriver) {
  EXPECT_THAT(Message(cudaErrorInsufficientDriver, 0, 12040),
              AllOf(HasSubstr("too old"), HasSubstr("12.4"), HasSubstr("13.0")));
}

TEST(DeviceTest, NoDevice) {
  EXPECT_THAT(Message(cudaErrorNoDevice, 0, CUDART_VERSION),
              AllOf(HasSubstr("no NVIDIA GPU is visible"), Not(HasSubstr("VISIBLE_DEVICES"))));
  EXPECT_THAT(Message(cudaErrorNoDevice, 0, CUDART_VERSION, "-1"),
              HasSubstr("CUDA_VISIBLE_DEVICES is '-1'"));
  EXPECT_THAT(Message(cudaSuccess, 0, CUDART_VERSION), HasSubstr("no NVIDIA GPU is visible"));
}

TEST(DeviceTest, WhateverElseFails) {
  EXPECT_THAT(Message(cudaErrorInitializationError, 0, CUDART_VERSION),
              AllOf(HasSubstr("cudaErrorInitializationError"), HasSubstr("nvidia-smi")));
}

}  // namespace
}  // namespace lockstep::cuda
