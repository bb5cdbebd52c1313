#include "foresight/device_time.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep {
namespace {

// The tiles of cuBLAS's common kernels for tensor cores, as the kernels' names give them.
struct Tile {
  double m, n;
};
constexpr Tile kTiles[] = {{256, 128}, {128, 256}, {128, 128}, {128, 64}, {64, 128}, {64, 64}};

// The rate of a dtype for which the data sheet has none is that of the widest it has.
double PeakOf(const Cluster::Device& device, DType dtype) {
  const auto found = device.peak.find(dtype);
  if (found != device.peak.end()) return found->second;
  const auto single = device.peak.find(DType::kF32);
  return single != device.peak.end() ? single->second : device.peak.begin()->second;
}

}  // namespace

double WorkOf(const KernelCost& cost) {
  double flops = 0, bytes = 0;
  for (const DeviceKernel& kernel : cost.kernels) {
    flops += 2 * kernel.m * kernel.n * kernel.k * kernel.batch;
    bytes += kernel.bytes;
  }
  return flops > 0 ? flops : bytes;
}

DeviceTime::DeviceTime(const Cluster& cluster) : device_(cluster.device) {
  const auto fitted = [&](const char* name, double otherwise) {
    const auto found = cluster.fitted.find(name);
    return found == cluster.fitted.end() ? otherwise : found->second;
  };
  const double passes = fitted("pass_efficiency", 1);
  product_efficiency_ = fitted("product_efficiency", 1);
  single_rate_ = fitted("single_product_efficiency", 1) * PeakOf(device_, DType::kF32);
  pass_bandwidth_ = passes * device_.bandwidth;
  map_bandwidth_ = fitted("map_efficiency", passes) * device_.bandwidth;
  tile_bandwidth_ = fitted("tile_bandwidth", std::numeric_limits<double>::infinity());
  wave_seconds_ = fitted("wave_seconds", 0);
  kernel_seconds_ = fitted("kernel_seconds", device_.launch);
}

double DeviceTime::Product(const DeviceKernel& kernel) const {
  const auto size = static_cast<double>(SizeOf(kernel.dtype));
  const double processors = device_.processors;
  const double rate = product_efficiency_ * PeakOf(device_, kernel.dtype) / processors;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [m, n] : kTiles) {
    const double tiles = kernel.batch * std::ceil(kernel.m / m) * std::ceil(kernel.n / n);
    // A single processor is never idle at the end of a wave, nor beyond the edge of a matrix.
    const double waves = processors > 1 ? std::ceil(tiles / processors)
                                        : kernel.batch * kernel.m * kernel.n / (m * n);
    least = std::min(
        least, waves * (kernel.k * std::max(2 * m * n / rate, size * (m + n) / tile_bandwidth_) +
                        wave_seconds_));
  }
  const double bytes =
      size * kernel.batch * (kernel.m * kernel.k + kernel.k * kernel.n + kernel.m * kernel.n);
  return std::max(least, bytes / pass_bandwidth_);
}

double DeviceTime::Seconds(const DeviceKernel& kernel) const {
  switch (kernel.kind) {
    case DeviceKernel::Kind::kProduct:
      return Product(kernel) + kernel_seconds_;
    case DeviceKernel::Kind::kSingleProduct:
      return 2 * kernel.m * kernel.n * kernel.k * kernel.batch / single_rate_ + kernel_seconds_;
    case DeviceKernel::Kind::kPass:
      return kernel.bytes / pass_bandwidth_ + kernel_seconds_;
    case DeviceKernel::Kind::kMaps:
      return kernel.bytes / map_bandwidth_ + kernel_seconds_;
  }
  return 0;
}

}  // namespace lockstep
