#include "strategies/single/single.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

// Where samples know nothing of each other (no batch statistics) and nothing is random, the loss
// and its gradients are those of the whole batch, however it is cut: only rounding differs.
TEST(SingleTest, AnyCutOfTheBatchIsTheSameTraining) {
  const auto losses = [](const Assignments& cut) {
    return RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(),
                       With({"model.dropout=0", "batch.size=10"}, cut))[0]
        .losses;
  };
  const std::vector<double> whole = losses({});
  ASSERT_EQ(whole.size(), 4u);
  for (const Assignments& cut :
       {Assignments{"batch.micro_batches=3"}, Assignments{"batch.micro_batches=100"},
        Assignments{"batch.shards=2", "batch.micro_batches=2"},
        Assignments{"batch.shards=5", "batch.micro_batches=3"}}) {
    const std::vector<double> parts = losses(cut);
    ASSERT_EQ(parts.size(), whole.size());
    for (size_t step = 0; step < whole.size(); ++step) {
      // AdamW divides gradients by their size, which magnifies the rounding of small ones.
      EXPECT_NEAR(parts[step] / whole[step], 1, 2e-5) << cut.back() << ", step " << step;
    }
  }
}

TEST(SingleTest, AResumedRunGoesOnWithUnevenMicroBatches) {
  const std::string config = SmallResNetConfig() + "[checkpoint]\nevery = 1\n";
  const Assignments cut = {"batch.size=10", "batch.shards=2", "batch.micro_batches=3"};
  const auto whole = RunStrategy(SingleStrategy(), MakeModel, config, cut);
  RunStrategy(SingleStrategy(), MakeModel, config, With(cut, {"train.steps=2"}));
  const auto resumed = ResumeStrategy(SingleStrategy(), MakeModel, config, cut);
  EXPECT_EQ(resumed[0].losses,
            std::vector<double>(whole[0].losses.begin() + 2, whole[0].losses.end()));
  EXPECT_EQ(resumed[0].parameter_hash, whole[0].parameter_hash);
}

}  // namespace
}  // namespace lockstep
