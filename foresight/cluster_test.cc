#include "foresight/cluster.h"

#include <string>

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
