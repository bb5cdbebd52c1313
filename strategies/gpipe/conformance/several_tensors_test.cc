// Conformance with torch's Pipe, what it has beyond torchgpipe: several inputs and outputs of
// stages, others than floats under checkpointing, tensors that are not divided with the batch, and
// neighbouring partitions that are merged.
//
// Not here: inputs of a step that are not divided (NoChunk). A step's inputs are one tensor of a
// data set, divided with the batch; what all micro-batches need is a constant of a block, and
// passes between stages in any shape, as here.

#include <iterator>  // std::ssize
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/autograd/operations.h"
#include "core/nn/layers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "strategies/schedules/named_schedules.h"
#include "strategies/stages/testing/probe.h"
#include "strategies/stages/testing/tested_pipeline.h"

namespace lockstep {
namespace {

constexpr int64_t kRoute = 5;  // numbers that are of no batch

// Features twice, numbers of no batch, and the inputs, which want no gradient.
class FirstOfFour : public Block {
 public:
  FirstOfFour()
      : Block("first"),
        left_(AddChild<LinearLayer>("left", kProbeWidth, kProbeWidth)),
        right_(AddChild<LinearLayer>("right", kProbeWidth, kProbeWidth)) {}

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    const Tensor route = pass.kernels().Empty({kRoute}, DType::kI32);
    for (int32_t i = 0; i < kRoute; ++i) route.data<int32_t>()[i] = 7 * i;
    return {left_(pass, inputs[0]), Variable(route), right_(pass, inputs[0]), inputs[0]};
  }

 private:
  LinearLayer& left_;
  LinearLayer& right_;
};

// Hands all on; the left ones changed, the right ones as they are.
class BetweenFour : public Block {
 public:
  explicit BetweenFour(const std::string& name)
      : Block(name), linear_(AddChild<LinearLayer>("linear", kProbeWidth, kProbeWidth)) {}

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    EXPECT_EQ(inputs.size(), 4u);
    inputs[0] = Add(pass.tape, linear_(pass, inputs[0]), inputs[2]);
    return inputs;
  }

 private:
  LinearLayer& linear_;
};

class LastOfFour : public Block {
 public:
  LastOfFour()
      : Block("last"), linear_(AddChild<LinearLayer>("linear", kProbeWidth, kProbeWidth)) {}

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    EXPECT_EQ(inputs[1].shape(), (Shape{kRoute}));
    EXPECT_EQ(inputs[1].value.data<int32_t>()[kRoute - 1], 7 * (kRoute - 1));
    EXPECT_FALSE(inputs[1].needs_gradient());
    EXPECT_FALSE(inputs[3].needs_gradient());
    const Variable sum = Add(pass.tape, inputs[0], inputs[2]);
    return {linear_(pass, Add(pass.tape, sum, inputs[3]))};
  }

 private:
  LinearLayer& linear_;
};

Model ModelOfFour() {
  Model model;
  model.blocks.push_back(std::make_unique<FirstOfFour>());
  model.blocks.push_back(std::make_unique<BetweenFour>("between1"));
  model.blocks.push_back(std::make_unique<BetweenFour>("between2"));
  model.blocks.push_back(std::make_unique<LastOfFour>());
  return model;
}

constexpr Checkpointing kModes[] = {Checkpointing::kAlways, Checkpointing::kExceptLast,
                                    Checkpointing::kNever};

TEST(SeveralTensorsTest, InputsAndOutputsOfStages) {
  for (const std::vector<int64_t>& balance :
       {std::vector<int64_t>{1, 3}, {2, 2}, {3, 1}, {1, 1, 2}, {1, 1, 1, 1}}) {
    for (const Checkpointing checkpointing : kModes) {
      for (const char* name : {"gpipe", "1f1b", "zb_h1"}) {
        const PipelineUnderTest pipeline = {
            .make_model = ModelOfFour,
            .schedule = MakeSchedule(name, static_cast<int>(std::ssize(balance)), 1, 3).value(),
            .balance = balance,
            .checkpointing = checkpointing,
            .samples = 5,
            .steps = 2};
        const auto outcome = RunPipeline(pipeline);
        ASSERT_TRUE(outcome.ok()) << outcome.status();
        EXPECT_EQ(*outcome, WithoutPipeline(pipeline)) << name;
      }
    }
  }
}

// Token ids go through a stage that does not look them up.
class AddTokens : public Block {
 public:
  AddTokens()
      : Block("add"), table_(AddChild<EmbeddingLayer>("table", 8, kProbeWidth, Init::Normal(1))) {}

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    return {Add(pass.tape, inputs[0], table_(pass, inputs[1]))};
  }

 private:
  EmbeddingLayer& table_;
};

class LookUpTokens : public Block {
 public:
  LookUpTokens()
      : Block("look_up"),
        table_(AddChild<EmbeddingLayer>("table", 8, kProbeWidth, Init::Normal(1))) {}

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    return {table_(pass, inputs[0]), inputs[0]};
  }

 private:
  EmbeddingLayer& table_;
};

TEST(SeveralTensorsTest, TokenIdsUnderCheckpointing) {
  const auto make_model = [] {
    Model model = MakeProbes({{}});
    model.blocks.insert(model.blocks.begin(), std::make_unique<LookUpTokens>());
    model.blocks.insert(model.blocks.begin() + 1, std::make_unique<AddTokens>());
    return model;
  };
  const auto tokens = [](Kernels& kernels, int64_t first, int64_t samples) {
    const Batch batch = {.inputs = kernels.Empty({samples}, DType::kI32),
                         .targets = kernels.Empty({samples}, DType::kI32)};
    for (int64_t i = 0; i < samples; ++i) {
      batch.inputs.data<int32_t>()[i] = static_cast<int32_t>((first + i) * 3 % 8);
      batch.targets.data<int32_t>()[i] = static_cast<int32_t>((first + i + 1) * 3 % 8);
    }
    return batch;
  };
  for (const Checkpointing checkpointing : kModes) {
    const PipelineUnderTest pipeline = {.make_model = make_model,
                                        .schedule = OneForwardOneBackwardSchedule(3, 4),
                                        .checkpointing = checkpointing,
                                        .make_batch = tokens};
    const auto outcome = RunPipeline(pipeline);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(*outcome, WithoutPipeline(pipeline));
  }
}

// Stages 0 and 1 are neighbours on a rank: what passes between them is not sent.
TEST(SeveralTensorsTest, MergedNeighbouringPartitions) {
  const auto merged = ScheduleFromCsv(
      "0F0,1F0,0F1,1F1,1B0,0B0,1B1,0B1\n"
      "2F0,3F0,2F1,3F1,3B0,2B0,3B1,2B1\n",
      "merged");
  ASSERT_TRUE(merged.ok()) << merged.status();
  const auto calls = [](const Schedule& schedule, const std::vector<int64_t>& balance) {
    for (const Checkpointing checkpointing : kModes) {
      const PipelineUnderTest pipeline = {.make_model = ModelOfFour,
                                          .schedule = schedule,
                                          .balance = balance,
                                          .checkpointing = checkpointing};
      const auto outcome = RunPipeline(pipeline);
      EXPECT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_EQ(*outcome, WithoutPipeline(pipeline));
    }
    int64_t sent = -1;
    EXPECT_TRUE(RunPipeline({.make_model = ModelOfFour, .schedule = schedule, .balance = balance},
                            [&](RankUnderTest& rank) {
                              if (rank.index() != 0) return;
                              sent = rank.ledger().Mark().Of(Operation::kSend, "activations").calls;
                            })
                    .ok());
    return sent;
  };
  const int64_t of_two = calls(GPipeSchedule(2, 2), {2, 2});
  EXPECT_EQ(of_two, 2 * 4);  // two micro-batches of four tensors
  EXPECT_EQ(calls(*merged, {1, 1, 1, 1}), of_two);
}

}  // namespace
}  // namespace lockstep
