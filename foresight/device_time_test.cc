#include "foresight/device_time.h"

#include "gtest/gtest.h"

namespace lockstep {
namespace {

// 100 processors of 1 TFLOP/s together, 1 TB/s.
Cluster Simple() {
  Cluster cluster;
  cluster.device.bandwidth = 1e12;
  cluster.device.processors = 100;
  cluster.device.peak = {{DType::kF16, 100e12}, {DType::kF32, 50e12}};
  return cluster;
}

DeviceKernel Product(double m, double n, double k, double batch = 1) {
  DeviceKernel kernel;
  kernel.kind = DeviceKernel::Kind::kProduct;
  kernel.dtype = DType::kF16;
  kernel.m = m;
  kernel.n = n;
  kernel.k = k;
  kernel.batch = batch;
  return kernel;
}

TEST(DeviceTimeTest, ProductsTakeWholeWavesOfTiles) {
  Cluster cluster = Simple();
  cluster.device.bandwidth = 1e13;
  const DeviceTime time(cluster);
  // 100 tiles of 256 x 128 are one wave; of one row more, two waves of smaller tiles.
  const double one = time.Seconds(Product(2560, 1280, 4096));
  EXPECT_DOUBLE_EQ(one, 2.0 * 256 * 128 * 4096 / 1e12);
  EXPECT_DOUBLE_EQ(time.Seconds(Product(256, 128, 4096, 100)), one);
  EXPECT_GT(time.Seconds(Product(2561, 1280, 4096)), 1.04 * one);
  EXPECT_DOUBLE_EQ(time.Seconds(Product(2560, 1280, 8192)), 2 * one);
}

TEST(DeviceTimeTest, ProductsReadTheirOperands) {
  // 2 bytes each of a matrix and two vectors.
  EXPECT_DOUBLE_EQ(DeviceTime(Simple()).Seconds(Product(10000, 1, 10000)), 2 * (1e8 + 2e4) / 1e12);
}

TEST(DeviceTimeTest, FittedNumbersSlowDown) {
  Cluster cluster = Simple();
  cluster.device.launch = 1e-6;
  DeviceKernel pass;
  pass.bytes = 1e9;
  EXPECT_DOUBLE_EQ(DeviceTime(cluster).Seconds(pass), 1e-3 + 1e-6);
  cluster.fitted = {{"kernel_seconds", 3e-6},          {"pass_efficiency", 0.5},
                    {"map_efficiency", 0.25},          {"wave_seconds", 5e-6},
                    {"product_efficiency", 0.5},       {"tile_bandwidth", 1e9},
                    {"single_product_efficiency", 0.5}};
  const DeviceTime time(cluster);
  EXPECT_DOUBLE_EQ(time.Seconds(pass), 2e-3 + 3e-6);
  pass.kind = DeviceKernel::Kind::kMaps;
  EXPECT_DOUBLE_EQ(time.Seconds(pass), 4e-3 + 3e-6);
  // Tiles wait for their operands: 2 bytes of 256 + 128 numbers for each step along k.
  EXPECT_DOUBLE_EQ(time.Seconds(Product(2560, 1280, 4096)), 4096 * 2 * 384 / 1e9 + 5e-6 + 3e-6);
  DeviceKernel single = Product(2560, 1280, 4096);
  single.kind = DeviceKernel::Kind::kSingleProduct;
  EXPECT_DOUBLE_EQ(time.Seconds(single), 2.0 * 2560 * 1280 * 4096 / 25e12 + 3e-6);
}

TEST(DeviceTimeTest, OneProcessorWastesNothing) {
  Cluster cluster = Simple();
  cluster.device.processors = 1;
  EXPECT_DOUBLE_EQ(DeviceTime(cluster).Seconds(Product(1000, 1000, 1000)), 2e9 / 100e12);
}

}  // namespace
}  // namespace lockstep
