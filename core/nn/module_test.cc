#include "core/nn/module.h"

#include <string>
#include <utility>
#include <vector>

#include "core/autograd/testing/arrays.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

// A node with something of every kind, between two children.
class Node : public Module {
 public:
  Node(std::string name, int depth) : Module(std::move(name)) {
    AddParameter("first", {2, 3}, Init::Normal(1));
    if (depth > 0) AddChild<Node>("left", depth - 1);
    AddStatistics(5, 0.1f);
    AddParameter("middle", {4}, Init::Constant(7));
    if (depth > 0) AddChild<Node>("right", depth - 1);
  }
};

template <typename T>
std::vector<std::string> NamesOf(const std::vector<T*>& members) {
  std::vector<std::string> names;
  for (const T* member : members) names.push_back(member->name);
  return names;
}

TEST(ModuleTest, ListsMembersInOrderOfRegistrationUnderTheirPaths) {
  const Node root("root", 1);
  EXPECT_EQ(root.name(), "root");
  EXPECT_THAT(NamesOf(root.Parameters()),
              ElementsAre("root.first", "root.left.first", "root.left.middle", "root.middle",
                          "root.right.first", "root.right.middle"));
  EXPECT_THAT(NamesOf(root.Statistics()), ElementsAre("root.left", "root", "root.right"));
}

class MaterializeTest : public testing::Test {
 protected:
  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
};

TEST_F(MaterializeTest, ModulesHaveNoMemoryBeforeIt) {
  const Node root("root", 2);
  for (const Parameter* parameter : root.Parameters()) {
    EXPECT_FALSE(parameter->value.defined());
    EXPECT_FALSE(parameter->gradient.defined());
  }
  for (const RunningStatistics* layer : root.Statistics()) EXPECT_FALSE(layer->mean.defined());
}

TEST_F(MaterializeTest, GivesParametersTheirValues) {
  const Node root("root", 0);
  Materialize(root.Parameters(), 1, kernels_);
  const std::vector<Parameter*> parameters = root.Parameters();
  EXPECT_EQ(parameters[0]->value.shape(), (Shape{2, 3}));
  const Tensor expected = kernels_.Empty({2, 3});
  Initialize(*parameters[0], 1, 0, kernels_, expected);
  EXPECT_TRUE(SameBits(Download(kernels_, expected), Download(kernels_, parameters[0]->value)));
  for (float value : parameters[1]->value.span<float>()) EXPECT_EQ(value, 7);
  EXPECT_EQ(allocator_.books().live(MemoryClass::kParameters), 2 * kAlignment);
  EXPECT_EQ(allocator_.books().live(MemoryClass::kGradients), 0);
}

TEST_F(MaterializeTest, RenamingOneLayerLeavesTheOthersAlone) {
  const Node a("same", 0), b("other", 0), c("same", 0), d("renamed", 0);
  for (const Node* node : {&a, &b, &c, &d}) Materialize(node->Parameters(), 3, kernels_);
  const auto first = [&](const Node& node) {
    return Download(kernels_, node.Parameters()[0]->value);
  };
  EXPECT_TRUE(SameBits(first(a), first(c)));
  EXPECT_FALSE(SameBits(first(b), first(d)));
}

TEST_F(MaterializeTest, TiedParametersShareMemory) {
  Parameter head("head", {3, 4}, Init::Normal(1)), embedding("embedding", {3, 4}, Init::Normal(1));
  head.tied_to = &embedding;
  Materialize(std::vector<Parameter*>{&head, &embedding}, 1, kernels_);
  EXPECT_TRUE(head.value.same_storage(embedding.value));
  EXPECT_EQ(allocator_.books().live(MemoryClass::kParameters), kAlignment);
}

TEST_F(MaterializeTest, StatisticsStartAtZeroAndOne) {
  const Node root("root", 0);
  Materialize(root.Statistics(), kernels_);
  const RunningStatistics& layer = *root.Statistics()[0];
  EXPECT_EQ(layer.mean.shape(), Shape{5});
  for (float value : layer.mean.span<float>()) EXPECT_EQ(value, 0);
  for (float value : layer.variance.span<float>()) EXPECT_EQ(value, 1);
  EXPECT_EQ(layer.sums.shape(), (Shape{3, 5}));
}

// --- blocks and their hooks ---------------------------------------------------------------------

using Events = std::vector<std::string>;

// Notes when it runs forward, and when backward passes through it.
class NotingBlock : public Block {
 public:
  NotingBlock(std::string name, Events& events) : Block(std::move(name)), events_(events) {}

  BlockHooks Noting(const std::string& suffix = "") {
    const auto note = [this, suffix](const std::string& event) {
      events_.push_back(name() + ": " + event + suffix);
    };
    return {.before_forward = [note](Pass&) { note("before forward"); },
            .after_forward = [note](Pass&) { note("after forward"); },
            .before_backward = [note] { note("before backward"); },
            .after_backward = [note] { note("after backward"); }};
  }

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    events_.push_back(name() + ": forward");
    const Variable& x = inputs[0];
    Variable y = pass.tape.Result(x.value, true);
    pass.tape.Record(y, [this, &k = pass.kernels(), x = x.gradient](Tensor dy) {
      events_.push_back(name() + ": backward");
      if (x != nullptr) x->Add(k, std::move(dy));
    });
    return {y};
  }

 private:
  Events& events_;
};

class BlockTest : public MaterializeTest {
 protected:
  Variable Input() {
    Tensor x = kernels_.Empty({2});
    kernels_.Fill(x, 1);
    return Variable(x);
  }

  Events events_;
  NotingBlock a_{"a", events_}, b_{"b", events_};
};

TEST_F(BlockTest, HooksSurroundForwardAndBackward) {
  a_.AddHooks(a_.Noting());
  b_.AddHooks(b_.Noting());
  Tape tape(kernels_);
  Pass pass = {.tape = tape};
  const Variables y = b_.Run(pass, a_.Run(pass, {Input()}));
  EXPECT_THAT(events_, ElementsAre("a: before forward", "a: forward", "a: after forward",
                                   "b: before forward", "b: forward", "b: after forward"));
  events_.clear();
  tape.Backward({{y[0], Input().value}});
  EXPECT_THAT(events_, ElementsAre("b: before backward", "b: backward", "b: after backward",
                                   "a: before backward", "a: backward", "a: after backward"));
}

TEST_F(BlockTest, SeveralHooksRunInTheOrderInWhichTheyWereAdded) {
  a_.AddHooks(a_.Noting(" 1"));
  a_.AddHooks(a_.Noting(" 2"));
  Tape tape(kernels_);
  Pass pass = {.tape = tape};
  const Variables y = a_.Run(pass, {Input()});
  tape.Backward({{y[0], Input().value}});
  EXPECT_THAT(events_, ElementsAre("a: before forward 1", "a: before forward 2", "a: forward",
                                   "a: after forward 1", "a: after forward 2",
                                   "a: before backward 1", "a: before backward 2", "a: backward",
                                   "a: after backward 1", "a: after backward 2"));
}

TEST_F(BlockTest, HooksMayBeGivenInPart) {
  a_.AddHooks({.after_backward = [this] { events_.push_back("done"); }});
  Tape tape(kernels_);
  Pass pass = {.tape = tape};
  const Variables y = a_.Run(pass, {Input()});
  tape.Backward({{y[0], Input().value}});
  EXPECT_THAT(events_, ElementsAre("a: forward", "a: backward", "done"));
}

TEST_F(BlockTest, WithoutRecordingOnlyTheHooksOfForwardRun) {
  a_.AddHooks(a_.Noting());
  Tape tape(kernels_, Tape::Recording::kOff);
  Pass pass = {.tape = tape, .mode = Pass::Mode::kEvaluate};
  a_.Run(pass, {Input()});
  EXPECT_THAT(events_, ElementsAre("a: before forward", "a: forward", "a: after forward"));
}

// A strategy that gathers parameters before backward must be told to free them again in any case.
TEST_F(BlockTest, HooksOfBackwardRunThoughNoGradientArrives) {
  a_.AddHooks(a_.Noting());
  Tape tape(kernels_);
  Pass pass = {.tape = tape};
  a_.Run(pass, {Input()});
  events_.clear();
  tape.Backward();
  EXPECT_THAT(events_, ElementsAre("a: before backward", "a: after backward"));
}

// The hooks see the pass that runs, with the logical place of its micro-batch.
TEST_F(BlockTest, HooksOfForwardGetThePass) {
  int64_t seen = 0;
  a_.AddHooks({.before_forward = [&seen](Pass& pass) { seen = pass.micro_batch; }});
  Tape tape(kernels_);
  Pass pass = {.tape = tape, .micro_batch = 5};
  a_.Run(pass, {Input()});
  EXPECT_EQ(seen, 5);
}

}  // namespace
}  // namespace lockstep
