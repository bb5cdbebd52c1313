#pragma once

namespace lockstep {

enum class DeviceType { kCpu, kCuda };

// Where a rank computes. Several ranks may name the same device.
struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;

  friend bool operator==(const Device&, const Device&) = default;
};

constexpr const char* Name(DeviceType type) { return type == DeviceType::kCpu ? "cpu" : "cuda"; }

}  // namespace lockstep
