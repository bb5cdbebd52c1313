#include "core/nn/skips.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/nn/module.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// Declares skips, and stashes and pops others if told so.
class Layer : public Block {
 public:
  using Names = std::vector<std::string>;

  Layer(std::string name, const Names& stashes, const Names& pops)
      : Block(std::move(name)), stashed_(stashes), popped_(pops) {
    for (const std::string& skip : stashes) DeclareStash(skip, 10);
    for (const std::string& skip : pops) DeclarePop(skip);
  }

  Layer& Does(const Names& stashes, const Names& pops) {
    stashed_ = stashes;
    popped_ = pops;
    return *this;
  }

 private:
  Variables Forward(Pass& pass, Variables inputs) override {
    for (const std::string& skip : popped_) inputs.push_back(Pop(pass, skip));
    for (const std::string& skip : stashed_) Stash(pass, skip, inputs[0]);
    return inputs;
  }

  Names stashed_, popped_;
};

using Blocks = std::vector<std::unique_ptr<Block>>;

template <typename... Layers>
Blocks BlocksOf(Layers&&... layers) {
  Blocks blocks;
  (blocks.push_back(std::forward<Layers>(layers)), ...);
  return blocks;
}

std::unique_ptr<Layer> Make(const std::string& name, const Layer::Names& stashes,
                            const Layer::Names& pops) {
  return std::make_unique<Layer>(name, stashes, pops);
}

std::string Faults(const Blocks& blocks) { return std::string(VerifySkips(blocks).message()); }

TEST(VerifySkipsTest, AcceptsSkipsThatArePoppedByLaterBlocks) {
  EXPECT_TRUE(VerifySkips({}).ok());
  EXPECT_TRUE(VerifySkips(BlocksOf(Make("a", {"x", "y"}, {}), Make("b", {"z"}, {"x"}),
                                   Make("c", {}, {"z", "y"})))
                  .ok());
}

TEST(VerifySkipsTest, StashedAndPoppedByTheSameBlock) {
  EXPECT_EQ(Faults(BlocksOf(Make("a", {"x"}, {"x"}))),
            "a: skip 'x' is stashed and popped by the same block");
}

TEST(VerifySkipsTest, StashedTwice) {
  EXPECT_EQ(Faults(BlocksOf(Make("a", {"x"}, {}), Make("b", {"x"}, {}), Make("c", {}, {"x"}))),
            "b: skip 'x' is stashed a second time");
}

TEST(VerifySkipsTest, PoppedTwice) {
  EXPECT_EQ(Faults(BlocksOf(Make("a", {"x"}, {}), Make("b", {}, {"x"}), Make("c", {}, {"x"}))),
            "c: skip 'x' is popped a second time");
}

TEST(VerifySkipsTest, PoppedButNotStashedBefore) {
  EXPECT_EQ(Faults(BlocksOf(Make("a", {}, {"x"}))),
            "a: skip 'x' is popped, but no earlier block stashes it");
  EXPECT_EQ(Faults(BlocksOf(Make("a", {}, {"x"}), Make("b", {"x"}, {}))),
            "a: skip 'x' is popped, but no earlier block stashes it");
}

TEST(VerifySkipsTest, StashedButNeverPopped) {
  EXPECT_EQ(Faults(BlocksOf(Make("a", {"x"}, {}), Make("b", {}, {}))),
            "a: skip 'x' is stashed, but never popped");
}

TEST(VerifySkipsTest, TellsAllFaultsAtOnce) {
  const std::string faults = Faults(BlocksOf(
      Make("a", {"x", "lost"}, {"early"}), Make("b", {"x", "own"}, {"own"}), Make("c", {}, {"x"})));
  EXPECT_THAT(faults, HasSubstr("a: skip 'lost' is stashed, but never popped"));
  EXPECT_THAT(faults, HasSubstr("a: skip 'early' is popped, but no earlier block"));
  EXPECT_THAT(faults, HasSubstr("b: skip 'x' is stashed a second time"));
  EXPECT_THAT(faults, HasSubstr("b: skip 'own' is stashed and popped by the same block"));
}

TEST(VerifySkipsTest, NameSpacesKeepUsesApart) {
  auto outer_down = Make("outer_down", {"x"}, {}), inner_down = Make("inner_down", {"x"}, {});
  auto inner_up = Make("inner_up", {}, {"x"}), outer_up = Make("outer_up", {}, {"x"});
  outer_down->Isolate("outer");
  inner_down->Isolate("inner");
  inner_up->Isolate("inner");
  outer_up->Isolate("outer");
  const Blocks blocks = BlocksOf(std::move(outer_down), std::move(inner_down), std::move(inner_up),
                                 std::move(outer_up));
  EXPECT_EQ(Faults(blocks), "");
  const std::vector<SkipPath> paths = SkipPaths(blocks);
  ASSERT_EQ(paths.size(), 2u);
  EXPECT_EQ(paths[0].name.ToString(), "inner/x");
  EXPECT_EQ(paths[0].from, 1);
  EXPECT_EQ(paths[0].to, 2);
  EXPECT_EQ(paths[1].name.ToString(), "outer/x");
  EXPECT_EQ(paths[1].from, 0);
  EXPECT_EQ(paths[1].to, 3);
  EXPECT_EQ(paths[1].elements, 10);
}

TEST(VerifySkipsTest, ANameSpaceCanBeForSomeNames) {
  auto first = Make("first", {"x"}, {}), between = Make("between", {"x"}, {"y"});
  between->Isolate("second", {"x"});  // its own stash; what it pops is that of "first"
  first = Make("first", {"y"}, {});
  auto last = Make("last", {}, {"x"});
  last->Isolate("second");
  EXPECT_EQ(Faults(BlocksOf(std::move(first), std::move(between), std::move(last))), "");
}

class SkipsInPassesTest : public testing::Test {
 protected:
  SkipsInPassesTest() : tape_(kernels_), pass_{.tape = tape_} {}

  Variables Input() { return {Variable(kernels_.Empty({3}))}; }

  std::string Fault(Block& block) {
    try {
      block.Run(pass_, Input());
    } catch (const StatusException& error) {
      EXPECT_EQ(error.status().code(), absl::StatusCode::kFailedPrecondition);
      return std::string(error.status().message());
    }
    return "";
  }

  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
  Tape tape_;
  Pass pass_;
};

TEST_F(SkipsInPassesTest, ASkipIsTheVariableItselfAndFreedAfterItsUse) {
  auto first = Make("first", {"x"}, {}), last = Make("last", {}, {"x"});
  Variables values = Input();
  const float* data = values[0].value.data<float>();
  values = first->Run(pass_, std::move(values));
  values[0] = Variable();
  const int64_t held = allocator_.books().live_total();
  values = last->Run(pass_, std::move(values));
  EXPECT_EQ(values[1].value.data<float>(), data);
  EXPECT_TRUE(pass_.skips.empty());
  EXPECT_GT(held, 0);
  values.clear();
  EXPECT_EQ(allocator_.books().live_total(), 0);
}

TEST_F(SkipsInPassesTest, RefusesWhatABlockHasNotDeclared) {
  EXPECT_EQ(Fault(Make("a", {}, {})->Does({"x"}, {})),
            "a: skip 'x' is stashed, but was not declared");
  EXPECT_EQ(Fault(Make("a", {}, {})->Does({}, {"x"})),
            "a: skip 'x' is popped, but was not declared");
}

TEST_F(SkipsInPassesTest, RefusesWhatABlockDeclaresAndDoesNotDo) {
  EXPECT_EQ(Fault(Make("a", {"x"}, {})->Does({}, {})), "a: skip 'x' was not stashed");
  auto stash = Make("a", {"x"}, {});
  stash->Run(pass_, Input());
  EXPECT_EQ(Fault(Make("b", {}, {"x"})->Does({}, {})), "b: skip 'x' was not popped");
}

TEST_F(SkipsInPassesTest, RefusesToPopNothing) {
  EXPECT_EQ(Fault(*Make("a", {}, {"x"})), "skip 'x' is popped, but nothing was stashed");
}

TEST_F(SkipsInPassesTest, RefusesToStashOverAnother) {
  auto stash = Make("a", {"x"}, {});
  stash->Run(pass_, Input());
  EXPECT_EQ(Fault(*stash), "skip 'x' is stashed while another one waits to be popped");
}

}  // namespace
}  // namespace lockstep
