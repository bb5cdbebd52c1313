#include "foresight/cluster.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<Cluster> Read(const std::string& text) {
  const std::string path = testing::TempDir() + "/cluster.toml";
  EXPECT_TRUE(WriteFileAtomically(path, text).ok());
  return ReadCluster(path);
}

constexpr char kSmall[] = R"(
name = "small"
[device]
memory = "16 GB"
bandwidth = "100 GB/s"
processors = 4
peak = { f32 = "2 TFLOP/s" }
[node]
devices = 2
link_bandwidth = "10 GB/s"
[fitted]
kernel_seconds = 1e-6
)";

TEST(ClusterTest, ReadsUnitsAndDefaults) {
  const auto cluster = Read(kSmall);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->device.memory, 16e9);
  EXPECT_EQ(cluster->device.peak.at(DType::kF32), 2e12);
  EXPECT_EQ(cluster->node.link_bandwidth, 10e9);
  EXPECT_EQ(cluster->devices(), 2);
  EXPECT_EQ(cluster->fitted.at("kernel_seconds"), 1e-6);
}

TEST(ClusterTest, NamesAllProblemsAtOnce) {
  std::string text = kSmall;
  text.replace(text.find("100 GB/s"), 8, "0 GB/s  ");
  text.replace(text.find("2 TFLOP/s"), 9, "2 TFLOPS/");
  text.replace(text.find("devices"), 7, "gadgets");
  const auto cluster = Read(text);
  EXPECT_THAT(std::string(cluster.status().message()),
              AllOf(HasSubstr("cluster.toml"), HasSubstr("bandwidth"), HasSubstr("above zero"),
                    HasSubstr("TFLOP/s"), HasSubstr("gadgets"), HasSubstr("devices")));
}

TEST(ClusterTest, SeveralNodesNeedANetwork) {
  EXPECT_THAT(std::string(Read(std::string(kSmall) + "[network]\nnodes = 2\n").status().message()),
              HasSubstr("network.bandwidth"));
}

TEST(ClusterTest, ANetworkGoesRoundTheFile) {
  const auto cluster = Read(std::string(kSmall) +
                            "[network]\nnodes = 6\nbandwidth = \"5 GB/s\"\nadapters = 1\n"
                            "latency = \"7 us\"\noversubscription = 1.5\nnodes_a_switch = 3\n");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->network.adapters, 1);
  const auto again = Read(ToToml(*cluster));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->network.nodes, 6);
  EXPECT_EQ(again->network.bandwidth, 5e9);
  EXPECT_EQ(again->network.adapters, 1);
  EXPECT_EQ(again->network.latency, 7e-6);
  EXPECT_EQ(again->network.oversubscription, 1.5);
  EXPECT_EQ(again->network.nodes_a_switch, 3);
}

// What calibration writes is read back as it was.
TEST(ClusterTest, MeasurementsGoRoundTheFile) {
  auto cluster = Read(kSmall);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  MeasuredKernel kernel;
  kernel.kernel = "Linear";
  kernel.dtype = DType::kBF16;
  kernel.ranks = 2;
  kernel.threads = 3;
  kernel.extents = {{"x", {1024, 256}}, {"w", {768, 256}}};
  kernel.work = 4.5e8;
  kernel.seconds = 0.0021;
  cluster->measured.kernels = {kernel};
  cluster->measured.calls = {{.operation = Operation::kAllGather,
                              .transport = Transport::kMpi,
                              .ranks = 4,
                              .bytes = 65536,
                              .seconds = 1.25e-5}};
  const auto again = Read(ToToml(*cluster));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(ToToml(*again), ToToml(*cluster));
  EXPECT_EQ(again->device.peak, cluster->device.peak);
  ASSERT_EQ(again->measured.kernels.size(), 1u);
  const MeasuredKernel& read = again->measured.kernels[0];
  EXPECT_EQ(read.kernel, "Linear");
  EXPECT_EQ(read.dtype, DType::kBF16);
  EXPECT_EQ(read.ranks, 2);
  EXPECT_EQ(read.threads, 3);
  EXPECT_EQ(read.extents, kernel.extents);
  EXPECT_EQ(read.work, 4.5e8);
  EXPECT_EQ(read.seconds, 0.0021);
  ASSERT_EQ(again->measured.calls.size(), 1u);
  EXPECT_EQ(again->measured.calls[0].operation, Operation::kAllGather);
  EXPECT_EQ(again->measured.calls[0].transport, Transport::kMpi);
  EXPECT_EQ(again->measured.calls[0].ranks, 4);
  EXPECT_EQ(again->measured.calls[0].bytes, 65536);
  EXPECT_EQ(again->measured.calls[0].seconds, 1.25e-5);
}

// Names go round the file whatever characters they have.
TEST(ClusterTest, NamesGoRoundTheFile) {
  auto cluster = Read(kSmall);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const std::string name = "a \"b\" \\ \n c";
  cluster->name = name;
  cluster->fitted = {{name, 0.5}};
  const auto again = Read(ToToml(*cluster));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->name, name);
  EXPECT_EQ(again->fitted, cluster->fitted);
}

// In seconds, not hours: the time that a key takes does not grow with their number.
TEST(ClusterTest, ReadsAnyNumberOfFittedValues) {
  std::string text = kSmall;
  for (int i = 0; i < 200'000; ++i) absl::StrAppend(&text, "k", i, " = 1\n");
  const auto cluster = Read(text);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->fitted.size(), 200'001u);
}

TEST(ClusterTest, RefusesMoreDevicesThanCanBeCounted) {
  std::string text = kSmall;
  text.replace(text.find("devices = 2"), 11, "devices = 2147483647");
  text += "[network]\nbandwidth = \"1 GB/s\"\nnodes = ";
  EXPECT_EQ(Read(text + "1\n").value().devices(), 2147483647);
  EXPECT_THAT(std::string(Read(text + "2\n").status().message()),
              AllOf(HasSubstr("cluster.toml"), HasSubstr("node.devices"),
                    HasSubstr("network.nodes"), HasSubstr("4294967294")));
}

TEST(ClusterTest, NamesAMeasurementThatIsNone) {
  for (const char* line :
       {"kernels = ['Linear f32 1x2 x=8x8 : 12 in']",
        "kernels = ['Linear f31 1x2 x=8x8 : 12 in 1']",
        "kernels = ['Linear f32 1x2 x=8 : 12 in 1']",
        "kernels = ['Linear f32 1e10x2 x=8x8 : 12 in 1']",
        "kernels = ['Linear f32 1x1.5 x=8x8 : 12 in 1']",
        "kernels = ['Linear f32 1x2 x=0.5x8 : 12 in 1']", "calls = ['all_reduce mpi 2 : inf in 1']",
        "calls = ['all_reduce threads 1 : 8 in 1']", "calls = ['all_reduce pigeons 2 : 8 in 1']",
        "calls = ['all_reduce mpi 2 : 8 in -1']"}) {
    EXPECT_THAT(std::string(Read(absl::StrCat(kSmall, "[measured]\n", line)).status().message()),
                AllOf(HasSubstr("cluster.toml"), HasSubstr("is no measurement"),
                      HasSubstr("tools/plan:calibrate")))
        << line;
  }
}

// The files that are shipped.
TEST(ClusterTest, ShippedClustersAreRight) {
  for (const char* name : {"laptop", "a100_80g", "h100", "b200", "two_hosts_1gbit"}) {
    const auto cluster = ReadCluster(std::string("foresight/clusters/") + name + ".toml");
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    EXPECT_EQ(cluster->name, name);
    // Efficiencies are fractions of the data sheet.
    for (const auto& [key, value] : cluster->fitted) {
      if (key.ends_with("_efficiency")) {
        EXPECT_LE(value, 1) << name << ", " << key;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
