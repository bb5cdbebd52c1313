#pragma once

#include "foresight/cluster.h"
#include "foresight/dialect.h"

namespace lockstep {

// What a call's time grows with: the FLOP of its matrix products if it has any, else its bytes.
double WorkOf(const KernelCost& cost);

// How long kernels take on a device.
//
// A product is divided into tiles of several sizes, which the processors compute in waves:
//
//   waves x (k max(2 m n / (rate / processors), 2 (m + n) bytes / tile_bandwidth) + wave_seconds)
//
// for the tile m x n with the least time; and at least what reading the operands and writing the
// result takes. A pass takes its bytes by the memory's bandwidth. Each kernel takes kernel_seconds
// beside.
//
// Fitted numbers (Cluster::fitted), efficiencies as fractions of the data sheet:
//
//   product_efficiency         of device.peak of the dtype, within a tile; default 1
//   single_product_efficiency  of device.peak of f32, for products in single precision; default 1
//   pass_efficiency            of device.bandwidth; default 1
//   map_efficiency             of device.bandwidth, over attention maps; default pass_efficiency
//   tile_bandwidth             bytes/s that feed a processor; default: no limit
//   wave_seconds               of each wave; default 0
//   kernel_seconds             of each kernel; default device.launch
class DeviceTime {
 public:
  static constexpr const char* kFittedNames[] = {"product_efficiency", "single_product_efficiency",
                                                 "pass_efficiency",    "map_efficiency",
                                                 "tile_bandwidth",     "wave_seconds",
                                                 "kernel_seconds"};

  explicit DeviceTime(const Cluster& cluster);

  double Seconds(const DeviceKernel& kernel) const;

 private:
  double Product(const DeviceKernel& kernel) const;

  Cluster::Device device_;
  double product_efficiency_, single_rate_, pass_bandwidth_, map_bandwidth_, tile_bandwidth_,
      wave_seconds_, kernel_seconds_;
};

}  // namespace lockstep
