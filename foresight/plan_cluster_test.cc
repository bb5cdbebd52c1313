#include "foresight/plan_cluster.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

// A node of two devices, and what is `fitted`.
absl::StatusOr<Cluster> Read(const std::string& fitted) {
  const std::string path = testing::TempDir() + "/plan_cluster.toml";
  EXPECT_TRUE(WriteFileAtomically(path, absl::StrCat(R"(name = "small"
[device]
memory = "1 GB"
bandwidth = "10 GB/s"
peak = { f32 = "1 TFLOP/s" }
processors = 1
[node]
devices = 2
link_bandwidth = "1 GB/s"
[fitted]
)",
                                                     fitted))
                  .ok());
  return ReadPlanCluster(path);
}

TEST(PlanClusterTest, KnowsWhatTheModelsOfTimeHave) {
  const auto cluster = Read("pass_efficiency = 0.5\ncollective_start = 1e-6");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->fitted.at("collective_start"), 1e-6);
  for (const char* name :
       {"laptop", "a100_80g", "h100", "b200", "two_hosts_1gbit", "llm_training_puzzles"}) {
    const auto shipped = ReadPlanCluster(absl::StrCat("foresight/clusters/", name, ".toml"));
    EXPECT_TRUE(shipped.ok()) << shipped.status();
  }
}

TEST(PlanClusterTest, NamesANumberThatNoModelHas) {
  EXPECT_THAT(std::string(Read("pass_eficiency = 0.5").status().message()),
              AllOf(HasSubstr("plan_cluster.toml: unknown key fitted.pass_eficiency"),
                    EndsWith("; did you mean fitted.pass_efficiency?")));
}

TEST(PlanClusterTest, NamesWhatNoNetworkCanHave) {
  EXPECT_THAT(std::string(Read("link_efficiency = 1.5").status().message()),
              AllOf(HasSubstr("plan_cluster.toml"), HasSubstr("fitted.link_efficiency is 1.5")));
}

}  // namespace
}  // namespace lockstep
