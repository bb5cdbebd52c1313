#include "tools/plan/questions.h"

#include <utility>

#include "core/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ParseRanksTest, GoesOnAsItBegins) {
  EXPECT_THAT(*ParseRanks("1024"), ElementsAre(1024));
  EXPECT_THAT(*ParseRanks("8,12,32"), ElementsAre(8, 12, 32));
  EXPECT_THAT(*ParseRanks("8,16,...,128"), ElementsAre(8, 16, 32, 64, 128));
  EXPECT_THAT(*ParseRanks("2,3,9,...,81"), ElementsAre(2, 3, 9, 27, 81));
  EXPECT_THAT(*ParseRanks("8,16,...,40"), ElementsAre(8, 16, 24, 32, 40));
}

TEST(ParseRanksTest, RefusesWhatIsNoList) {
  for (const char* text : {"", "x", "0", "8,8", "16,8", "8,...,64", "8,16,...", "8,16,...,65",
                           "8,16,...,64,128", "...", "8,16,...,4"}) {
    const auto ranks = ParseRanks(text);
    ASSERT_FALSE(ranks.ok()) << text;
    EXPECT_THAT(std::string(ranks.status().message()), HasSubstr("write it as 1024")) << text;
  }
}

TEST(VaryTest, ChangesOneNumberOfTheCluster) {
  NamedCluster base = {.name = "two", .cluster = {}};
  base.cluster.network.bandwidth = 1e9;
  base.cluster.network.latency = 1e-5;
  base.cluster.device.peak = {{DType::kF32, 1e12}, {DType::kBF16, 4e12}};
  const auto networks = Vary(base, "network=100Gbit,400Gbit");
  ASSERT_TRUE(networks.ok()) << networks.status();
  ASSERT_EQ(networks->size(), 2u);
  EXPECT_EQ((*networks)[0].name, "two, network 100Gbit");
  EXPECT_EQ((*networks)[0].cluster.network.bandwidth, 12.5e9);
  EXPECT_EQ((*networks)[1].cluster.network.bandwidth, 50e9);
  EXPECT_EQ((*networks)[1].cluster.network.latency, 1e-5);
  const auto peaks = Vary(base, "peak=8 TFLOP/s");
  ASSERT_TRUE(peaks.ok()) << peaks.status();
  EXPECT_EQ((*peaks)[0].cluster.device.peak.at(DType::kF32), 2e12);
  EXPECT_EQ((*peaks)[0].cluster.device.peak.at(DType::kBF16), 8e12);
}

TEST(VaryTest, SaysWhatIsWrong) {
  for (const auto& [text, message] :
       {std::pair{"speed=1", "there are network, latency, link"},
        std::pair{"network", "in --vary network"}, std::pair{"network=5 s", "in --vary network=5"},
        std::pair{"network=0bit/s", "must be above 0"}}) {
    const auto varied = Vary({}, text);
    ASSERT_FALSE(varied.ok()) << text;
    EXPECT_THAT(std::string(varied.status().message()), HasSubstr(message));
  }
}

}  // namespace
}  // namespace lockstep
