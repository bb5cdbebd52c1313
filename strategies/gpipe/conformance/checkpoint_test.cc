// Conformance with torchgpipe, "checkpoint": activations that backward makes once more.
//
// Not here: moving random state between devices. Random numbers are counted from logical places
// (core/base/philox.h), so there is no state to save; that they come again is tested.

#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/operations.h"
#include "core/nn/layers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "strategies/schedules/named_schedules.h"
#include "strategies/stages/testing/probe.h"
#include "strategies/stages/testing/tested_pipeline.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

constexpr auto F = ActionKind::kForward;
constexpr auto B = ActionKind::kBackward;

// Two stages on one rank: their actions have one order.
Schedule TwoStagesOnARank() {
  return {.name = "two",
          .micro_batches = 1,
          .rank_of_stage = {0, 0},
          .ranks = {{{F, 0, 0}, {F, 1, 0}, {B, 1, 0}, {B, 0, 0}}}};
}

TEST(CheckpointTest, SerialCheckpoints) {
  Events events;
  const auto make_model = [&] {
    return MakeProbes({Recorded("a", events), Recorded("b", events)});
  };
  const auto outcome = RunPipeline({.make_model = make_model,
                                    .schedule = TwoStagesOnARank(),
                                    .checkpointing = Checkpointing::kAlways});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(events.all(), ElementsAre("Fa 0", "Fb 0", "Fb' 0", "Bb 0", "Fa' 0", "Ba 0"));
}

// A block without parameters, that hands on what it gets.
class Identity : public Block {
 public:
  using Block::Block;

 protected:
  Variables Forward(Pass&, Variables inputs) override { return inputs; }
};

// Looks token ids up: what comes in cannot have a gradient, what goes out has one.
class Lookup : public Block {
 public:
  explicit Lookup(const std::string& name)
      : Block(name),
        table_(AddChild<EmbeddingLayer>("table", kProbeWidth, kProbeWidth, Init::Normal(1))) {}

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    EXPECT_FALSE(inputs[0].needs_gradient());
    EXPECT_EQ(inputs[0].value.dtype(), DType::kI32);
    return {table_(pass, inputs[0])};
  }

 private:
  EmbeddingLayer& table_;
};

Batch TokensInClasses(Kernels& kernels, int64_t first_sample, int64_t samples) {
  const Batch batch = {.inputs = kernels.Empty({samples}, DType::kI32),
                       .targets = kernels.Empty({samples}, DType::kI32)};
  for (int64_t i = 0; i < samples; ++i) {
    batch.inputs.data<int32_t>()[i] = static_cast<int32_t>((first_sample + i) * 3 % kProbeWidth);
    batch.targets.data<int32_t>()[i] = static_cast<int32_t>((first_sample + i) % kProbeWidth);
  }
  return batch;
}

// A stage that has nothing to train, on whose outputs no gradient comes back.
TEST(CheckpointTest, NotRequiresGrad) {
  const auto make_model = [] {
    Model model = MakeProbes({{}, {}});
    model.blocks.insert(model.blocks.begin(), std::make_unique<Identity>("identity"));
    return model;
  };
  for (const Schedule& schedule : {GPipeSchedule(3, 3), ZeroBubbleSchedule(3, 3)}) {
    const PipelineUnderTest pipeline = {
        .make_model = make_model, .schedule = schedule, .checkpointing = Checkpointing::kAlways};
    const auto outcome = RunPipeline(pipeline);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(*outcome, WithoutPipeline(pipeline)) << schedule.name;
  }
}

// The inputs of a stage want no gradient, its parameters do: of vectors, and of token ids, which
// come from the data or from a stage before.
TEST(CheckpointTest, NotRequiresGradWithParameter) {
  for (const int handed_on : {0, 1}) {
    const auto make_model = [&] {
      Model model = MakeProbes({{}});
      model.blocks.insert(model.blocks.begin(), std::make_unique<Lookup>("lookup"));
      if (handed_on) model.blocks.insert(model.blocks.begin(), std::make_unique<Identity>("ids"));
      return model;
    };
    for (const Checkpointing checkpointing :
         {Checkpointing::kAlways, Checkpointing::kExceptLast, Checkpointing::kNever}) {
      const PipelineUnderTest pipeline = {.make_model = make_model,
                                          .schedule = GPipeSchedule(2 + handed_on, 3),
                                          .checkpointing = checkpointing,
                                          .make_batch = TokensInClasses};
      const auto outcome = RunPipeline(pipeline);
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_EQ(*outcome, WithoutPipeline(pipeline));
      const std::vector<float>& of_table = outcome->gradients.at("lookup.table.weight");
      EXPECT_NE(std::accumulate(of_table.begin(), of_table.end(), 0.0f), 0);
    }
  }
}

// Drops elements, and tells which in every pass.
class Dropping : public Block {
 public:
  using Masks = std::map<int64_t, std::vector<std::vector<bool>>>;  // by micro-batch

  Dropping(const std::string& name, Masks& masks, std::mutex& mutex)
      : Block(name),
        masks_(masks),
        mutex_(mutex),
        linear_(AddChild<LinearLayer>("linear", kProbeWidth, kProbeWidth)),
        dropout_(AddChild<DropoutLayer>("dropout", name, 0.5f)) {}

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    const Variable y = dropout_(pass, linear_(pass, inputs[0]));
    std::vector<bool> mask;
    for (const float element : y.value.span<float>()) mask.push_back(element != 0);
    const std::lock_guard lock(mutex_);
    masks_[pass.micro_batch].push_back(mask);
    return {y};
  }

 private:
  Masks& masks_;
  std::mutex& mutex_;
  LinearLayer& linear_;
  DropoutLayer& dropout_;
};

TEST(CheckpointTest, RandomNumbersComeAgain) {
  Dropping::Masks masks;
  std::mutex mutex;
  const auto make_model = [&] {
    Model model = MakeProbes({{}});
    model.blocks.insert(model.blocks.begin(), std::make_unique<Dropping>("drop", masks, mutex));
    return model;
  };
  const PipelineUnderTest pipeline = {.make_model = make_model,
                                      .schedule = OneForwardOneBackwardSchedule(2, 3),
                                      .checkpointing = Checkpointing::kAlways};
  const auto outcome = RunPipeline(pipeline);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  const Dropping::Masks of_pipeline = std::exchange(masks, {});
  ASSERT_EQ(of_pipeline.size(), 3u);
  for (const auto& [micro_batch, passes] : of_pipeline) {
    ASSERT_EQ(passes.size(), 2u);
    EXPECT_EQ(passes[0], passes[1]) << micro_batch;
  }
  EXPECT_NE(of_pipeline.at(0)[0], of_pipeline.at(1)[0]);
  EXPECT_EQ(*outcome, WithoutPipeline(pipeline));
  EXPECT_EQ(masks.at(2)[0], of_pipeline.at(2)[0]);
}

TEST(CheckpointTest, DetectCheckpointingAndRecomputing) {
  using Flags = std::pair<bool, bool>;
  std::vector<Flags> flags;
  ProbeActions tells;
  tells.forward = [&](Pass& pass) {
    flags.emplace_back(pass.is_checkpointing(), pass.is_recomputing());
  };
  const auto run = [&](Checkpointing checkpointing) {
    flags.clear();
    const auto outcome =
        RunPipeline({.make_model = [&] { return MakeProbes({tells}); },
                     .schedule = GPipeSchedule(1, 1),
                     .checkpointing = checkpointing},
                    [](RankUnderTest& rank) { rank.runner().Evaluate(rank.MakeBatch(0, 2)); });
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    return flags;
  };
  // Training, and the evaluation behind it, which has neither.
  EXPECT_THAT(run(Checkpointing::kAlways),
              ElementsAre(Flags(true, false), Flags(false, true), Flags(false, false)));
  EXPECT_THAT(run(Checkpointing::kNever), ElementsAre(Flags(false, false), Flags(false, false)));
}

}  // namespace
}  // namespace lockstep
