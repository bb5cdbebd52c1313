#include "foresight/flow_simulation.h"

#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using Steps = std::vector<std::vector<FlowStep>>;
using testing::HasSubstr;

constexpr double kNone = std::numeric_limits<double>::infinity();

// Two switches with two nodes of two devices: devices 0 and 1 in node 0, 2 and 3 in node 1, and 4
// to 7 at the other switch.
FlowPlatform Small() {
  FlowPlatform platform;
  platform.switches = 2;
  platform.nodes = 2;
  platform.devices = 2;
  platform.device_rate = 8e9;
  platform.node_rate = 2e9;
  platform.switch_rate = 1e9;
  platform.node_latency = 1e-3;
  platform.latency = 5e-3;
  return platform;
}

std::vector<std::vector<double>> Times(const FlowPlatform& platform, Steps steps) {
  steps.resize(platform.size());
  const auto times = SimulateFlows(platform, steps);
  EXPECT_TRUE(times.ok()) << times.status();
  return times.ok() ? *times : std::vector<std::vector<double>>(steps.size(), {kNone, kNone});
}

std::string Error(const FlowPlatform& platform, Steps steps) {
  steps.resize(platform.size());
  return std::string(SimulateFlows(platform, steps).status().message());
}

TEST(FlowSimulationTest, AMessageTakesLatencyAndTheSlowestLink) {
  const auto end = [](int to) {
    return Times(Small(), {{FlowStep::Begin(0, to, 4e9), FlowStep::Wait(0)}})[0];
  };
  EXPECT_EQ(end(1)[0], 0);  // begins, and goes on
  EXPECT_NEAR(end(1)[1], 1e-3 + 4 / 8., 1e-8);
  EXPECT_NEAR(end(2)[1], 5e-3 + 4 / 2., 1e-8);
  EXPECT_NEAR(end(4)[1], 5e-3 + 4 / 1., 1e-8);
}

// Two flows over one node's adapters have half of them each, until the shorter one ends.
TEST(FlowSimulationTest, FlowsShareLinks) {
  const auto times = Times(Small(), {{FlowStep::Begin(0, 2, 1e9), FlowStep::Wait(0)},
                                     {FlowStep::Begin(1, 3, 2e9), FlowStep::Wait(1)}});
  EXPECT_NEAR(times[0][1], 5e-3 + 1., 1e-8);
  EXPECT_NEAR(times[1][1], 5e-3 + 1.5, 1e-8);
}

// Where flows of several devices, nodes or switches end, they share what leads there.
TEST(FlowSimulationTest, ReceiversLinksAreShared) {
  const auto end = [](double device_rate, double node_rate, double switch_rate, int first,
                      int second, int to, int other) {
    FlowPlatform platform = Small();
    platform.switches = 3;
    platform.device_rate = device_rate;
    platform.node_rate = node_rate;
    platform.switch_rate = switch_rate;
    Steps steps(12);
    steps[first] = {FlowStep::Begin(0, to, 1e9), FlowStep::Wait(0)};
    steps[second] = {FlowStep::Begin(1, other, 1e9), FlowStep::Wait(1)};
    return Times(platform, steps)[first][1];
  };
  EXPECT_NEAR(end(1e9, 10e9, 10e9, 2, 4, 0, 0), 5e-3 + 2, 1e-8);
  EXPECT_NEAR(end(10e9, 1e9, 10e9, 2, 4, 0, 1), 5e-3 + 2, 1e-8);
  EXPECT_NEAR(end(10e9, 10e9, 1e9, 4, 8, 0, 2), 5e-3 + 2, 1e-8);
}

TEST(FlowSimulationTest, DirectionsDoNotDisturbEachOther) {
  const auto times = Times(Small(), {{FlowStep::Begin(0, 2, 1e9), FlowStep::Wait(0)},
                                     {},
                                     {FlowStep::Begin(1, 0, 1e9), FlowStep::Wait(1)}});
  EXPECT_NEAR(times[0][1], 5e-3 + 0.5, 1e-8);
  EXPECT_NEAR(times[2][1], 5e-3 + 0.5, 1e-8);
}

// The fair shares are those of rates, whatever the latencies: TCP would give the longer way less.
// Both leave device 0; the one in the node has what the other cannot take.
TEST(FlowSimulationTest, SharesAreMaxMinFair) {
  FlowPlatform platform = Small();
  platform.device_rate = 3e9;
  platform.node_latency = 0;
  platform.latency = 0;
  const auto times = Times(platform, {{FlowStep::Begin(0, 1, 1e9), FlowStep::Begin(1, 4, 1e9),
                                       FlowStep::Wait(0), FlowStep::Wait(1)}});
  EXPECT_NEAR(times[0][2], 1 / 2., 1e-8);  // 2e9 beside 1e9 over the switch
  EXPECT_NEAR(times[0][3], 1 / 1., 1e-8);
  platform.device_rate = 1e9;
  platform.node_latency = 1e-3;
  platform.latency = 5e-3;
  const auto halves = Times(platform, {{FlowStep::Begin(0, 1, 1e9), FlowStep::Begin(1, 4, 1e9),
                                        FlowStep::Wait(0), FlowStep::Wait(1)}});
  // 4 ms alone, and then half of the link each.
  EXPECT_NEAR(halves[0][2], 1e-3 + 4e-3 + 2 * (1 - 4e-3), 1e-8);
  EXPECT_NEAR(halves[0][3], 1e-3 + 2., 1e-8);
}

// Messages in a node have a rate of their own, each; and share what flows share.
TEST(FlowSimulationTest, MessagesAreBounded) {
  FlowPlatform platform = Small();
  platform.message_rate = 4e9;
  platform.node_latency = 0;
  const auto one = [&](FlowStep flow) {
    return Times(platform, {{flow, FlowStep::Wait(0)}})[0][1];
  };
  EXPECT_NEAR(one(FlowStep::Message(0, 1, 4e9)), 1, 1e-8);
  EXPECT_NEAR(one(FlowStep::Begin(0, 1, 4e9)), 0.5, 1e-8);
  EXPECT_NEAR(one(FlowStep::Message(0, 2, 4e9)), 5e-3 + 2, 1e-8);
  const auto three =
      Times(platform, {{FlowStep::Message(0, 1, 4e9), FlowStep::Message(1, 1, 4e9),
                        FlowStep::Message(2, 1, 4e9), FlowStep::Wait(0), FlowStep::Wait(1)}});
  EXPECT_NEAR(three[0][3], 1.5, 1e-8);  // a third of 8e9 each
  EXPECT_NEAR(three[0][4], 1.5, 1e-8);
}

// Device 0 sends while it computes; device 2 computes once it has received, and answers.
TEST(FlowSimulationTest, StepsKeepTheirOrder) {
  const auto times =
      Times(Small(), {{FlowStep::Compute(1), FlowStep::Begin(0, 2, 2e9), FlowStep::Compute(0.25),
                       FlowStep::Wait(0), FlowStep::Wait(1), FlowStep::Compute(1)},
                      {},
                      {FlowStep::Wait(0), FlowStep::Compute(0.5), FlowStep::Begin(1, 0, 1e9)}});
  EXPECT_NEAR(times[0][0], 1, 1e-8);
  EXPECT_NEAR(times[0][1], 1, 1e-8);
  EXPECT_NEAR(times[0][2], 1.25, 1e-8);
  EXPECT_NEAR(times[0][3], 2.005, 1e-8);
  EXPECT_NEAR(times[2][0], 2.005, 1e-8);
  EXPECT_NEAR(times[2][1], 2.505, 1e-8);
  EXPECT_NEAR(times[2][2], 2.505, 1e-8);
  EXPECT_NEAR(times[0][4], 3.01, 1e-8);
  EXPECT_NEAR(times[0][5], 4.01, 1e-8);
}

// Micro-batches through a pipeline of nodes: what is sent is hidden behind what is computed, but
// where the pipeline fills.
TEST(FlowSimulationTest, APipelineHidesItsMessages) {
  FlowPlatform platform = Small();
  platform.switches = 1;
  platform.nodes = 4;
  platform.devices = 1;
  constexpr int kMicroBatches = 50;
  const double compute = 0.5, bytes = 0.8e9, hop = 5e-3 + 0.4;
  Steps steps(4);
  for (int stage = 0; stage < 4; ++stage) {
    for (int i = 0; i < kMicroBatches; ++i) {
      if (stage > 0) steps[stage].push_back(FlowStep::Wait(i * 4 + stage));
      steps[stage].push_back(FlowStep::Compute(compute));
      if (stage < 3) steps[stage].push_back(FlowStep::Begin(i * 4 + stage + 1, stage + 1, bytes));
    }
  }
  EXPECT_NEAR(Times(platform, steps)[3].back(), kMicroBatches * compute + 3 * (compute + hop),
              1e-6);
}

// A flow begins behind what its device has waited for, with no computation between.
TEST(FlowSimulationTest, AFlowFollowsAWait) {
  const auto times = Times(Small(), {{FlowStep::Begin(0, 1, 8e9)},
                                     {FlowStep::Wait(0), FlowStep::Begin(1, 0, 8e9),
                                      FlowStep::Wait(1), FlowStep::Wait(1)}});
  EXPECT_NEAR(times[1][0], 1.001, 1e-8);
  EXPECT_NEAR(times[1][2], 2.002, 1e-8);
  EXPECT_NEAR(times[1][3], 2.002, 1e-8);
}

TEST(FlowSimulationTest, NothingTakesNoTime) {
  const auto times =
      Times(Small(), {{FlowStep::Compute(0), FlowStep::Begin(0, 2, 0), FlowStep::Wait(0)}});
  EXPECT_EQ(times[0][0], 0);
  EXPECT_EQ(times[0][1], 0);
  EXPECT_NEAR(times[0][2], 5e-3, 1e-8);
  EXPECT_TRUE(Times(Small(), {})[0].empty());
}

TEST(FlowSimulationTest, RefusesWhatCannotBe) {
  EXPECT_THAT(Error(Small(), {{FlowStep::Begin(0, 8, 1)}}),
              HasSubstr("device 0, step 0: flow 0 goes to device 8"));
  EXPECT_THAT(Error(Small(), {{}, {FlowStep::Begin(0, 1, 1)}}), HasSubstr("another one"));
  EXPECT_THAT(Error(Small(), {{FlowStep::Begin(3, 1, 1), FlowStep::Begin(3, 2, 1)}}),
              HasSubstr("device 0, step 1: flow 3 begins a second time"));
  EXPECT_THAT(Error(Small(), {{FlowStep::Wait(5)}}),
              HasSubstr("waits for flow 5, which nobody begins"));
  EXPECT_THAT(Error(Small(), {{FlowStep::Compute(kNone)}}), HasSubstr("must be finite"));
  EXPECT_THAT(Error(Small(), {{FlowStep::Begin(0, 1, -1)}}), HasSubstr("not below zero"));
  // Each waits before it begins what the other one waits for.
  EXPECT_THAT(Error(Small(), {{FlowStep::Wait(1), FlowStep::Begin(0, 1, 1)},
                              {FlowStep::Wait(0), FlowStep::Begin(1, 0, 1)}}),
              HasSubstr("device 0, step 0: waits for ever"));
  FlowPlatform platform = Small();
  platform.switch_rate = 0;
  EXPECT_THAT(Error(platform, {}), HasSubstr("the switch rate of a platform is 0"));
  platform = Small();
  platform.latency = -1;
  EXPECT_THAT(Error(platform, {}), HasSubstr("latencies"));
  EXPECT_THAT(std::string(SimulateFlows(Small(), {}).status().message()),
              HasSubstr("steps of 0 devices for a platform of 8"));
}

TEST(FlowSimulationTest, ThreadsMaySimulateAtOnce) {
  std::vector<double> ends(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ends.size(); ++i) {
    threads.emplace_back([&ends, i] {
      const double bytes = static_cast<double>(i + 1) * 2e9;
      ends[i] = Times(Small(), {{FlowStep::Begin(0, 2, bytes), FlowStep::Wait(0)}})[0][1];
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < ends.size(); ++i) {
    EXPECT_NEAR(ends[i], 5e-3 + static_cast<double>(i + 1), 1e-8);
  }
}

}  // namespace
}  // namespace lockstep
