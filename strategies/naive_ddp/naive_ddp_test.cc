#include "strategies/naive_ddp/naive_ddp.h"

#include <utility>

#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/ddp/ddp.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

TEST(NaiveDdpTest, HasTheBitsOfSingleAndTheTrafficOfTheTheory) {
  const Assignments as_it_is = {}, not_deferred = {"train.deferred_batch_norm=false"};
  for (const auto& [config, more] :
       {std::pair(SmallGptConfig(), as_it_is), std::pair(SmallResNetConfig(), as_it_is),
        std::pair(SmallResNetConfig(), not_deferred), std::pair(SmallUNetConfig(), as_it_is)}) {
    const Assignments cut = With({"cut.micro_batches=3"}, more);
    const auto single =
        RunStrategy(SingleStrategy(), MakeModel, config, With(cut, {"cut.shards=4"}));
    const auto naive = RunStrategy(NaiveDdpStrategy(), MakeModel, config, With(cut, {"mesh.dp=4"}));
    ExpectSameBits(naive, single);
    for (const RankReport& report : naive) ExpectPredictedTraffic(report);
  }
}

// What the engine's version adds: fewer calls for the same bytes.
TEST(NaiveDdpTest, MakesACallForEachGradient) {
  const auto calls = [](const StrategyDefinition& strategy) {
    return RunStrategy(strategy, MakeModel, SmallGptConfig(), {"mesh.dp=2"})[0].traffic.Of(
        "gradients");
  };
  const CommTotal naive = calls(NaiveDdpStrategy()), buckets = calls(DdpStrategy());
  EXPECT_GT(naive.calls, 10 * buckets.calls);
  EXPECT_EQ(naive.wire_bytes, buckets.wire_bytes);
}

}  // namespace
}  // namespace lockstep
