#include "core/nn/recompute.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/testing/arrays.h"
#include "core/base/status.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/nn/layers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

constexpr int64_t kImage = 4, kChannels = 3;
constexpr Window kThree = {.kernel = 3, .stride = 1, .padding = 1};

// What a block or an operation sees of the pass.
std::string Seen(const Pass& pass) {
  return pass.is_recomputing() ? "recomputing" : pass.is_checkpointing() ? "checkpointing" : "once";
}

// Dropout, and a convolution with batch normalisation; the block before the last stashes what the
// last one pops.
class Layer : public Block {
 public:
  enum class Skip { kNone, kStash, kPop };
  Layer(std::string name, Skip skip, std::vector<std::string>& seen)
      : Block(std::move(name)),
        skip_(skip),
        seen_(seen),
        dropout_(AddChild<DropoutLayer>("dropout", Module::name(), 0.3f)),
        unit_(AddChild<ConvolutionUnit>("unit", kChannels, kChannels, kThree, Activation::kRelu)) {
    if (skip == Skip::kStash) DeclareStash("detail", kImage * kImage * kChannels);
    if (skip == Skip::kPop) DeclarePop("detail");
  }

 private:
  Variables Forward(Pass& pass, Variables inputs) override {
    seen_.push_back(name() + " " + Seen(pass));
    Variable x = Operate(pass, "dropout", {inputs[0]}, [this](Pass& run, const Variables& in) {
      seen_.push_back(name() + ".dropout " + Seen(run));
      return dropout_(run, in[0]);
    });
    if (skip_ == Skip::kPop) x = Add(pass.tape, x, Pop(pass, "detail"));
    x = unit_(pass, x);
    if (skip_ == Skip::kStash) Stash(pass, "detail", x);
    return {x, inputs.back()};  // the second is a constant that passes by
  }

  const Skip skip_;
  std::vector<std::string>& seen_;
  DropoutLayer& dropout_;
  ConvolutionUnit& unit_;
};

class RecomputedTest : public testing::Test {
 protected:
  struct Outcome {
    std::vector<std::vector<float>> gradients;  // of the parameters, and of the input
    std::vector<std::vector<float>> statistics;

    friend bool operator==(const Outcome&, const Outcome&) = default;
  };

  RecomputedTest() {
    const Layer::Skip skips[] = {Layer::Skip::kNone, Layer::Skip::kStash, Layer::Skip::kNone,
                                 Layer::Skip::kPop};
    for (const Layer::Skip skip : skips) {
      blocks_.push_back(std::make_unique<Layer>("b" + std::to_string(blocks_.size()), skip, seen_));
      Materialize(blocks_.back()->Parameters(), /*seed=*/5, kernels_);
      Materialize(blocks_.back()->Statistics(), kernels_);
    }
  }

  Outcome Train(Pass::Replay replay = Pass::Replay::kNone) {
    for (const auto& block : blocks_) {
      for (RunningStatistics* layer : block->Statistics()) layer->Clear();
      for (Parameter* parameter : block->Parameters()) parameter->ClearGradient();
    }
    seen_.clear();
    Tape tape(kernels_);
    Pass pass = {.tape = tape, .seed = 3, .step = 1, .micro_batch = 2, .replay = replay};
    const Shape shape = {2, kImage, kImage, kChannels};
    const Variable input = tape.Result(Upload(kernels_, RandomArray(shape, 1)), true);
    Variables x = {input, Variable(Upload(kernels_, {1}, {7}))};
    for (const auto& block : blocks_) x = block->Run(pass, std::move(x));
    EXPECT_TRUE(pass.skips.empty());
    EXPECT_EQ(pass.replay, replay);
    tape.Backward({{x[0], Upload(kernels_, RandomArray(shape, 2))}});
    Outcome outcome;
    const auto look = [](const Tensor& tensor) {
      return std::vector<float>(tensor.span<float>().begin(), tensor.span<float>().end());
    };
    for (const auto& block : blocks_) {
      for (const Parameter* parameter : block->Parameters()) {
        outcome.gradients.push_back(look(parameter->gradient));
      }
      for (const RunningStatistics* layer : block->Statistics()) {
        outcome.statistics.push_back(look(layer->sums));
      }
    }
    outcome.gradients.push_back(look(input.gradient->Take()));
    return outcome;
  }

  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
  std::vector<std::string> seen_;
  std::vector<std::unique_ptr<Block>> blocks_;
};

TEST_F(RecomputedTest, BlocksWithSkipsHaveTheSameBits) {
  const Outcome kept = Train();
  EXPECT_THAT(seen_, ElementsAre("b0 once", "b0.dropout once", "b1 once", "b1.dropout once",
                                 "b2 once", "b2.dropout once", "b3 once", "b3.dropout once"));
  for (const auto& block : blocks_) {
    block->recomputed.whole = true;
    EXPECT_EQ(Train(), kept) << block->name();
  }
  EXPECT_EQ(seen_.size(), 16u);
  EXPECT_EQ(seen_[0], "b0 checkpointing");
  EXPECT_EQ(seen_[8], "b3 recomputing");
  EXPECT_EQ(seen_[14], "b0 recomputing");
}

TEST_F(RecomputedTest, OperationsOfTheNamedKindsHaveTheSameBits) {
  const Outcome kept = Train();
  for (const auto& block : blocks_) block->recomputed.operations = {"dropout", "convolution"};
  EXPECT_EQ(Train(), kept);
  EXPECT_EQ(seen_.size(), 12u);  // each dropout twice
  EXPECT_EQ(seen_[0], "b0 once");
  EXPECT_EQ(seen_[1], "b0.dropout checkpointing");
  EXPECT_EQ(seen_[8], "b3.dropout recomputing");
  for (const auto& block : blocks_) block->recomputed.operations = {"attention"};
  EXPECT_EQ(Train(), kept);
  EXPECT_EQ(seen_.size(), 8u);
}

TEST_F(RecomputedTest, OperationsInsideARecomputedBlockHaveTheSameBits) {
  const Outcome kept = Train();
  for (const auto& block : blocks_) {
    block->recomputed = {.whole = true, .operations = {"dropout", "convolution"}};
  }
  EXPECT_EQ(Train(), kept);
  EXPECT_EQ(seen_.size(), 4u * (2 + 3));
}

// As where a whole stage is recomputed.
TEST_F(RecomputedTest, APassThatRecomputesLeavesNoTracesHoweverItIsNested) {
  for (const auto& block : blocks_) {
    block->recomputed = {.whole = true, .operations = {"dropout", "convolution"}};
    for (RunningStatistics* layer : block->Statistics()) kernels_.Fill(layer->sums, 9);
  }
  const Outcome outcome = Train(Pass::Replay::kRecomputing);
  for (const auto& sums : outcome.statistics) {
    EXPECT_EQ(sums, std::vector<float>(sums.size(), 9));
  }
  for (const std::string& seen : seen_) EXPECT_TRUE(seen.ends_with(" recomputing")) << seen;
}

TEST_F(RecomputedTest, EvaluationRunsOnce) {
  blocks_[0]->recomputed = {.whole = true, .operations = {"dropout"}};
  Tape tape(kernels_, Tape::Recording::kOff);
  Pass pass = {.tape = tape, .mode = Pass::Mode::kEvaluate};
  const Tensor x = Upload(kernels_, RandomArray({1, kImage, kImage, kChannels}, 1));
  blocks_[0]->Run(pass, {Variable(x), Variable(x)});
  EXPECT_THAT(seen_, ElementsAre("b0 once", "b0.dropout once"));
}

// Stashes nothing, and so breaks what it declares.
class Forgetful : public Block {
 public:
  Forgetful() : Block("forgetful") { DeclareStash("detail", 1); }

 private:
  Variables Forward(Pass&, Variables inputs) override { return inputs; }
};

TEST_F(RecomputedTest, ABlockMustStashWhatItDeclares) {
  Forgetful block;
  block.recomputed.whole = true;
  Tape tape(kernels_);
  Pass pass = {.tape = tape};
  try {
    block.Run(pass, {Variable(Upload(kernels_, RandomArray({2}, 1)))});
    ADD_FAILURE() << "no error";
  } catch (const StatusException& error) {
    EXPECT_EQ(error.status().message(), "forgetful: skip 'detail' was not stashed");
  }
}

}  // namespace
}  // namespace lockstep
