// Conformance with torchgpipe, "skip": tensors that pass over stages.
//
// Not here: portals, trackers of them and their copies, which are how torchgpipe does it. Faulty
// declarations and the faults of single blocks are tested in core/nn/skips_test.cc; that `gpipe`
// refuses them, in gpipe_test.cc.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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
using ::testing::IsEmpty;

// What a layer of a test does with skips.
struct Skipping {
  std::vector<std::string> stashes = {}, pops = {};
  std::string space = "";
};

// y = x w' + b, + x, + all that it pops; stashes y itself. The next layer so uses what it is handed
// twice, and the popping one once more.
class SkippingLayer : public Block {
 public:
  SkippingLayer(const std::string& name, const Skipping& skipping)
      : Block(name),
        skipping_(skipping),
        linear_(AddChild<LinearLayer>("linear", kProbeWidth, kProbeWidth)) {
    cost = {.forward_macs = kProbeWidth * kProbeWidth, .output_elements = kProbeWidth};
    for (const std::string& skip : skipping.stashes) DeclareStash(skip, kProbeWidth);
    for (const std::string& skip : skipping.pops) DeclarePop(skip);
    if (!skipping.space.empty()) Isolate(skipping.space);
  }

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    Variable y = Add(pass.tape, linear_(pass, inputs[0]), inputs[0]);
    for (const std::string& skip : skipping_.pops) y = Add(pass.tape, y, Pop(pass, skip));
    for (const std::string& skip : skipping_.stashes) Stash(pass, skip, y);
    return {y};
  }

 private:
  const Skipping skipping_;
  LinearLayer& linear_;
};

Model ModelOf(const std::vector<Skipping>& layers) {
  Model model;
  for (const Skipping& layer : layers) {
    const std::string name = absl::StrCat("layer", model.blocks.size() + 1);
    model.blocks.push_back(std::make_unique<SkippingLayer>(name, layer));
  }
  return model;
}

void ExpectTransparent(const std::vector<Skipping>& layers,
                       const std::vector<std::vector<int64_t>>& balances) {
  for (const std::vector<int64_t>& balance : balances) {
    const auto stages = static_cast<int>(balance.size());
    for (const Schedule& schedule : {GPipeSchedule(stages, 3), ZeroBubbleSchedule(stages, 3)}) {
      for (const Checkpointing checkpointing :
           {Checkpointing::kAlways, Checkpointing::kExceptLast, Checkpointing::kNever}) {
        SCOPED_TRACE(absl::StrCat(schedule.name, " [", absl::StrJoin(balance, ", "), "]"));
        const PipelineUnderTest pipeline = {.make_model = [&] { return ModelOf(layers); },
                                            .schedule = schedule,
                                            .balance = balance,
                                            .checkpointing = checkpointing,
                                            .samples = 5};
        const auto outcome = RunPipeline(pipeline);
        ASSERT_TRUE(outcome.ok()) << outcome.status();
        EXPECT_EQ(*outcome, WithoutPipeline(pipeline));
      }
    }
  }
}

TEST(SkipTest, OneToThree) {
  ExpectTransparent({{.stashes = {"1to3"}}, {}, {.pops = {"1to3"}}},
                    {{3}, {1, 2}, {2, 1}, {1, 1, 1}});
}

TEST(SkipTest, SeveralThatCross) {
  ExpectTransparent({{.stashes = {"a"}},
                     {.stashes = {"b", "c"}},
                     {.pops = {"c"}},
                     {.stashes = {"d"}, .pops = {"a", "b"}},
                     {.pops = {"d"}}},
                    {{1, 4}, {2, 3}, {1, 1, 3}, {2, 1, 2}, {1, 1, 1, 2}});
}

// Two uses of one kind of layer, kept apart.
TEST(SkipTest, Namespaces) {
  ExpectTransparent({{.stashes = {"x"}, .space = "outer"},
                     {.stashes = {"x"}, .space = "inner"},
                     {.pops = {"x"}, .space = "inner"},
                     {.pops = {"x"}, .space = "outer"}},
                    {{2, 2}, {1, 2, 1}, {1, 1, 1, 1}});
}

// --- where skips go
// -------------------------------------------------------------------------------

// "0-2 x": from which stage to which, of one layer each.
std::vector<std::string> Layout(const std::vector<Skipping>& layers,
                                const std::vector<int64_t>& balance) {
  const Model model = ModelOf(layers);
  EXPECT_TRUE(VerifySkips(model.blocks).ok());
  StagePlan plan;
  int64_t begin = 0;
  for (const int64_t blocks : balance) {
    plan.stages.push_back({begin, begin + blocks});
    begin += blocks;
  }
  std::vector<std::string> layout;
  for (int stage = 0; stage < plan.size(); ++stage) {
    for (const SkipPath& path : SkipEndsOf(model, plan.stages[stage]).in) {
      layout.push_back(
          absl::StrCat(plan.StageOfBlock(path.from), "-", stage, " ", path.name.ToString()));
    }
  }
  return layout;
}

TEST(SkipLayoutTest, NoSkippables) { EXPECT_THAT(Layout({{}, {}}, {1, 1}), IsEmpty()); }

TEST(SkipLayoutTest, InnerPartition) {
  EXPECT_THAT(Layout({{.stashes = {"x"}}, {.pops = {"x"}}, {}}, {2, 1}), IsEmpty());
}

TEST(SkipLayoutTest, AdjacentPartitions) {
  EXPECT_THAT(Layout({{.stashes = {"x"}}, {.pops = {"x"}}}, {1, 1}), ElementsAre("0-1 x"));
}

TEST(SkipLayoutTest, FarPartitions) {
  EXPECT_THAT(Layout({{.stashes = {"x"}}, {}, {.pops = {"x"}}}, {1, 1, 1}), ElementsAre("0-2 x"));
}

TEST(SkipLayoutTest, PopTwoFromDifferentPartitions) {
  EXPECT_THAT(Layout({{.stashes = {"x"}}, {.stashes = {"y"}}, {.pops = {"x", "y"}}}, {1, 1, 1}),
              ElementsAre("0-2 x", "1-2 y"));
}

TEST(SkipLayoutTest, Namespace) {
  EXPECT_THAT(Layout({{.stashes = {"x"}, .space = "a"},
                      {.stashes = {"x"}, .space = "b"},
                      {.pops = {"x"}, .space = "b"},
                      {.pops = {"x"}, .space = "a"}},
                     {1, 1, 1, 1}),
              ElementsAre("1-2 b/x", "0-3 a/x"));
}

// --- how long its memory lives
// --------------------------------------------------------------------

constexpr int64_t kWide = 1024;  // features of the skip, beside which all else is little
constexpr int64_t kSkipBytes = 2 * kWide * 4;  // of a micro-batch

class WideStash : public Block {
 public:
  WideStash()
      : Block("stash"),
        up_(AddChild<LinearLayer>("up", kProbeWidth, kWide)),
        linear_(AddChild<LinearLayer>("linear", kProbeWidth, kProbeWidth)) {
    DeclareStash("wide", kWide);
  }

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    Stash(pass, "wide", up_(pass, inputs[0]));
    return {linear_(pass, inputs[0])};
  }

 private:
  LinearLayer& up_;
  LinearLayer& linear_;
};

// Adds it up with as wide a tensor; the sum, not the skip, is kept for backward.
class WidePop : public Block {
 public:
  WidePop()
      : Block("pop"),
        up_(AddChild<LinearLayer>("up", kProbeWidth, kWide)),
        down_(AddChild<LinearLayer>("down", kWide, kProbeWidth)) {
    DeclarePop("wide");
  }

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    return {down_(pass, Add(pass.tape, up_(pass, inputs[0]), Pop(pass, "wide")))};
  }

 private:
  LinearLayer& up_;
  LinearLayer& down_;
};

class SkipMemoryTest : public ::testing::TestWithParam<std::vector<int64_t>> {};
INSTANTIATE_TEST_SUITE_P(Balances, SkipMemoryTest,
                         ::testing::Values(std::vector<int64_t>{4}, std::vector<int64_t>{1, 3},
                                           std::vector<int64_t>{2, 2},
                                           std::vector<int64_t>{1, 1, 2}));

// Behind the block that has popped it, and after the step.
TEST_P(SkipMemoryTest, IsFreedAfterItsLastUse) {
  const std::vector<int64_t>& balance = GetParam();
  for (const Checkpointing checkpointing : {Checkpointing::kAlways, Checkpointing::kNever}) {
    int looked = 0;
    ProbeActions behind;
    behind.forward = [&](Pass& pass) {
      const int64_t live = pass.kernels().allocator().books().live(MemoryClass::kActivations);
      // What is there beside: of backward's record, the sum; the skip itself, from which
      // checkpointing begins again, where it came from another stage.
      const bool records = pass.tape.recording();
      const bool comes_again = balance.size() > 1 && pass.is_checkpointing();
      const int64_t kept = (records ? 1 : 0) + (comes_again ? 1 : 0);
      EXPECT_LT(live, kept * kSkipBytes + kSkipBytes / 2) << "micro-batch " << pass.micro_batch;
      ++looked;
    };
    const auto make_model = [&] {
      Model model = MakeProbes({{}, behind});
      model.blocks.insert(model.blocks.begin(), std::make_unique<WideStash>());
      model.blocks.insert(model.blocks.begin() + 2, std::make_unique<WidePop>());
      return model;
    };
    const PipelineUnderTest pipeline = {
        .make_model = make_model,
        .schedule = LayerwiseSchedule(static_cast<int>(balance.size()), 2),
        .balance = balance,
        .checkpointing = checkpointing};
    const auto outcome = RunPipeline(pipeline, [](RankUnderTest& rank) {
      const auto live = [&rank] {
        return rank.kernels().allocator().books().live(MemoryClass::kActivations);
      };
      EXPECT_EQ(live(), 0);
      rank.runner().Evaluate(rank.MakeBatch(0, 2));
      EXPECT_EQ(live(), 0);
    });
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(looked, checkpointing == Checkpointing::kAlways ? 5 : 3);
    EXPECT_EQ(*outcome, WithoutPipeline(pipeline));
  }
}

// On the rank that has stashed it, it is gone when the gradients come back, without waiting for
// something else to be sent: a first stage sends nothing in its backwards.
TEST(SkipMemoryOfTheStashTest, IsFreedWhenItsGradientComes) {
  int looked = 0;
  ProbeActions behind;
  Kernels* kernels = nullptr;
  behind.forward = [&](Pass& pass) { kernels = &pass.kernels(); };
  behind.backward = [&](int64_t) {
    const int64_t live = kernels->allocator().books().live(MemoryClass::kActivations);
    EXPECT_LT(live, kSkipBytes + kSkipBytes / 2);  // the gradient
    ++looked;
  };
  const auto make_model = [&] {
    Model model = MakeProbes({behind, {}});
    model.blocks.insert(model.blocks.begin(), std::make_unique<WideStash>());
    model.blocks.insert(model.blocks.begin() + 2, std::make_unique<WidePop>());
    return model;
  };
  const auto outcome =
      RunPipeline({.make_model = make_model, .schedule = GPipeSchedule(2, 3), .balance = {2, 2}});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(looked, 3);
}

}  // namespace
}  // namespace lockstep
