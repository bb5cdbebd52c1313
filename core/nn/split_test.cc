#include "core/nn/split.h"

#include <memory>
#include <string>
#include <vector>

#include "core/autograd/testing/arrays.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/nn/layers.h"
#include "core/nn/model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using reference::Array;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A member of a group that is not there.
class LoneMember : public SplitGroup {
 public:
  LoneMember(int size, int index) : size_(size), index_(index) {}

  int size() const override { return size_; }
  int index() const override { return index_; }
  bool splits_sequence() const override { return false; }
  Variable Enter(Pass&, const Variable& x) override { return x; }
  Variable Leave(Pass&, Variable x) override { return x; }
  Variable GatherColumns(Pass&, const Variable& x, const std::vector<int64_t>&) override {
    return x;
  }
  std::vector<int64_t> GatherNumbers(const std::vector<int64_t>& numbers) const override {
    return numbers;
  }
  void Reduce(const Tensor&, Reduction) override {}
  void SumGradient(const Tensor&) override {}

 private:
  int size_, index_;
};

TEST(SplitTest, RulesNameLayersAndWhatTheyAreIn) {
  const std::vector<SplitRule> plan = {{"layer*.unit1", SplitStyle::kColumn},
                                       {"head", SplitStyle::kVocabulary},
                                       {"*.down", SplitStyle::kRow},
                                       {"layer1*", SplitStyle::kColumnGathered}};
  EXPECT_EQ(StyleOf(plan, "layer1.0.unit1"), SplitStyle::kColumn);
  EXPECT_EQ(StyleOf(plan, "layer1.0.unit1.conv"), SplitStyle::kColumn);
  EXPECT_EQ(StyleOf(plan, "layer1.0.unit10"), SplitStyle::kColumnGathered);
  EXPECT_EQ(StyleOf(plan, "layer2.0.unit2.conv"), SplitStyle::kReplicated);
  EXPECT_EQ(StyleOf(plan, "head.norm"), SplitStyle::kVocabulary);
  EXPECT_EQ(StyleOf(plan, "header"), SplitStyle::kReplicated);
  EXPECT_EQ(StyleOf(plan, "blocks.0.network.down"), SplitStyle::kRow);
  EXPECT_EQ(StyleOf(plan, "down"), SplitStyle::kReplicated);
  EXPECT_EQ(StyleOf({}, "down"), SplitStyle::kReplicated);
}

TEST(SplitTest, SharesStartAsSlicesOfTheWhole) {
  CpuAllocator allocator;
  CpuKernels kernels(allocator);
  LinearLayer whole("layer", 7, 10);
  Materialize(whole.Parameters(), 3, kernels);
  const Array weight = Download(kernels, whole.weight().value);
  const Array bias = Download(kernels, whole.bias()->value);
  for (int index = 0; index < 3; ++index) {
    LoneMember member(3, index);
    LinearLayer column("layer", 7, 10), row("layer", 7, 10);
    column.Split(SplitStyle::kColumn, member);
    row.Split(SplitStyle::kRow, member);
    Materialize(column.Parameters(), 3, kernels);
    Materialize(row.Parameters(), 3, kernels);
    const Range out = EvenRange(10, 3, index), in = EvenRange(7, 3, index);
    EXPECT_EQ(column.weight().value.shape(), (Shape{out.count, 7}));
    EXPECT_EQ(row.weight().value.shape(), (Shape{10, in.count}));
    const Array rows = Download(kernels, column.weight().value);
    for (int64_t i = 0; i < rows.elements(); ++i) EXPECT_EQ(rows[i], weight[out.first * 7 + i]);
    const Array part = Download(kernels, column.bias()->value);
    for (int64_t i = 0; i < out.count; ++i) EXPECT_EQ(part[i], bias[out.first + i]);
    const Array columns = Download(kernels, row.weight().value);
    for (int64_t i = 0; i < columns.elements(); ++i) {
      EXPECT_EQ(columns[i], weight[i / in.count * 7 + in.first + i % in.count]);
    }
    EXPECT_TRUE(SameBits(bias, Download(kernels, row.bias()->value))) << "one for all";
  }
}

TEST(SplitTest, PackedProjectionsAreSplitByHeads) {
  LoneMember member(2, 1);
  QkvLayer layer("qkv", 12, 4, {});
  EXPECT_EQ(layer.Attend({}).heads, 4);
  layer.Split(SplitStyle::kColumn, member);
  EXPECT_THAT(layer.weight().slice->ranges, ElementsAre(Range{6, 6}, Range{18, 6}, Range{30, 6}));
  const Attention attention = layer.Attend({});
  EXPECT_EQ(attention.heads, 2);
  EXPECT_EQ(attention.head_width, 3);
  EXPECT_EQ(attention.total_heads, 4);
  EXPECT_EQ(attention.first_head, 2);
}

// Eight heads of queries and four of keys and values, six hidden features: a member of two has half
// of each projection.
TEST(SplitTest, ProjectionsOfDifferentWidthsAreSplitEachByItself) {
  LoneMember member(2, 1);
  QkvLayer qkv("qkv", 16, 8, 4, {});
  EXPECT_EQ(qkv.Attend({}).key_heads, 4);
  qkv.Split(SplitStyle::kColumn, member);
  EXPECT_THAT(qkv.weight().slice->ranges, ElementsAre(Range{8, 8}, Range{20, 4}, Range{28, 4}));
  const Attention attention = qkv.Attend({});
  EXPECT_EQ(attention.heads, 4);
  EXPECT_EQ(attention.key_heads, 2);
  EXPECT_EQ(attention.total_heads, 8);
  EXPECT_EQ(attention.first_head, 4);
  EXPECT_THAT(std::string(qkv.CheckSplit(SplitStyle::kColumn, 8, "ranks").message()),
              HasSubstr("4 heads of keys and values, which do not divide among 8 ranks"));

  GateUpLayer gate_up("gate_up", 4, 6, {});
  gate_up.CutFeatures(SplitStyle::kColumn, 2);
  using Leaf = std::vector<Range>;
  EXPECT_THAT(gate_up.OutputLeaves(), ElementsAre(Leaf{{0, 3}, {6, 3}}, Leaf{{3, 3}, {9, 3}}));
  gate_up.Split(SplitStyle::kColumn, member);
  EXPECT_THAT(gate_up.weight().slice->ranges, ElementsAre(Range{3, 3}, Range{9, 3}));
  const auto targets = gate_up.Targets();
  ASSERT_EQ(targets.size(), 3);
  EXPECT_EQ(targets[2].name, "gate_up.up");
  EXPECT_EQ(targets[2].outputs, (Range{6, 6}));
}

// The second of two members has leaves 2 and 3 of four: heads 4 to 7 of eight.
TEST(SplitTest, LeavesAreWhatMembersOfAsManyWouldHave) {
  LoneMember member(2, 1);
  QkvLayer layer("qkv", 24, 8, {});
  layer.CutFeatures(SplitStyle::kColumn, 4);
  using Leaf = std::vector<Range>;
  EXPECT_THAT(layer.OutputLeaves(),
              ElementsAre(Leaf{{0, 6}, {24, 6}, {48, 6}}, Leaf{{6, 6}, {30, 6}, {54, 6}},
                          Leaf{{12, 6}, {36, 6}, {60, 6}}, Leaf{{18, 6}, {42, 6}, {66, 6}}))
      << "alone";
  layer.Split(SplitStyle::kColumn, member);
  EXPECT_THAT(layer.weight().slice->ranges,
              ElementsAre(Range{12, 12}, Range{36, 12}, Range{60, 12}));
  EXPECT_THAT(layer.OutputLeaves(),
              ElementsAre(Leaf{{0, 6}, {12, 6}, {24, 6}}, Leaf{{6, 6}, {18, 6}, {30, 6}}));
  EXPECT_EQ(layer.Attend({}).first_head, 4);

  LinearLayer row("row", 20, 3);
  row.CutFeatures(SplitStyle::kRow, 4);
  row.Split(SplitStyle::kRow, member);
  EXPECT_THAT(row.weight().slice->ranges, ElementsAre(Range{10, 10}));
  EXPECT_THAT(row.InputLeaves(), ElementsAre(Leaf{{0, 5}}, Leaf{{5, 5}}));

  LoneMember last(4, 3);
  layer.Split(SplitStyle::kColumn, last);
  EXPECT_TRUE(layer.OutputLeaves().empty()) << "one leaf is the sum of this member";
}

TEST(MatchesLayerTest, APatternNamesALayerOrAModuleAroundIt) {
  for (const char* pattern : {"blocks.1.attention.qkv", "blocks.1", "blocks", "*", "*.qkv", "*qkv",
                              "blocks.*", "*.1.*.qkv", "b*k*1*v", "*.attention", "**.qkv*"}) {
    EXPECT_TRUE(MatchesLayer(pattern, "blocks.1.attention.qkv")) << pattern;
  }
  for (const char* pattern : {"", "block", "blocks.", "locks", "blocks.2", "*.qk", "*.atten", "qkv",
                              "*.qkv.", "blocks.1.attention.qkv.x", "*.1.*.out"}) {
    EXPECT_FALSE(MatchesLayer(pattern, "blocks.1.attention.qkv")) << pattern;
  }
}

// Four leaves of ten words have 3, 3, 3 and 1: members have whole leaves.
TEST(SplitTest, VocabulariesAreSplitByLeaves) {
  LoneMember first(2, 0), second(2, 1);
  EmbeddingLayer table("token", 10, 4, Init::Normal(1));
  table.CutFeatures(SplitStyle::kVocabulary, 4);
  table.Split(SplitStyle::kVocabulary, first);
  EXPECT_THAT(table.weight().slice->ranges, ElementsAre(Range{0, 6}));
  EXPECT_EQ(table.weight().padding, 0);
  table.Split(SplitStyle::kVocabulary, second);
  EXPECT_THAT(table.weight().slice->ranges, ElementsAre(Range{6, 4}));
  EXPECT_EQ(table.weight().padding, 2);
}

// On every device, split or not, of enough words: leaves of 64 rows, or a multiple.
TEST(SplitTest, VocabulariesArePadded) {
  LoneMember last(4, 3);
  EmbeddingLayer table("token", 300, 4, Init::Normal(1));
  table.CutFeatures(SplitStyle::kReplicated, 1);
  EXPECT_EQ(table.weight().held_shape(), (Shape{300, 4})) << "no vocabulary";
  table.CutFeatures(SplitStyle::kVocabulary, 1);
  EXPECT_EQ(table.weight().held_shape(), (Shape{320, 4}));
  EXPECT_EQ(table.weight().slice_shape(), (Shape{300, 4})) << "as files have it";
  table.CutFeatures(SplitStyle::kVocabulary, 4);
  EXPECT_EQ(table.weight().held_shape(), (Shape{512, 4}));
  table.Split(SplitStyle::kVocabulary, last);
  EXPECT_EQ(table.weight().slice_shape(), (Shape{0, 4}));
  EXPECT_EQ(table.weight().held_shape(), (Shape{128, 4}));

  EmbeddingLayer small("token", 255, 4, Init::Normal(1));
  small.CutFeatures(SplitStyle::kVocabulary, 4);
  EXPECT_EQ(small.weight().held_shape(), (Shape{256, 4})) << "each leaf has words";
  EmbeddingLayer few("token", 63, 4, Init::Normal(1));
  few.CutFeatures(SplitStyle::kVocabulary, 1);
  EXPECT_EQ(few.weight().held_shape(), (Shape{63, 4}));
}

TEST(SplitTest, VocabulariesAreFilledUpWithZeros) {
  CpuAllocator allocator;
  CpuKernels kernels(allocator);
  LoneMember last(3, 2), none(4, 3);
  EmbeddingLayer table("token", 10, 4, Init::Normal(1));
  table.Split(SplitStyle::kVocabulary, last);
  EXPECT_THAT(table.weight().slice->ranges, ElementsAre(Range{8, 2}));
  EXPECT_EQ(table.weight().padding, 2);
  EXPECT_EQ(table.weight().slice_shape(), (Shape{2, 4}));
  EXPECT_EQ(table.weight().held_shape(), (Shape{4, 4}));
  Materialize(table.Parameters(), 3, kernels);
  const Array rows = Download(kernels, table.weight().value);
  for (int64_t i = 0; i < 8; ++i) EXPECT_NE(rows[i], 0);
  for (int64_t i = 8; i < 16; ++i) EXPECT_EQ(rows[i], 0);

  // Five words for four ranks: the last has none, but as much memory.
  EmbeddingLayer small("token", 5, 4, Init::Normal(1));
  small.Split(SplitStyle::kVocabulary, none);
  EXPECT_EQ(small.weight().slice_shape(), (Shape{0, 4}));
  EXPECT_EQ(small.weight().held_shape(), (Shape{2, 4}));
}

TEST(SplitTest, NormalisationsFollowTheirChannels) {
  LoneMember member(2, 1);
  BatchNormLayer split("norm", 6, Activation::kRelu), behind("norm", 6, Activation::kRelu);
  split.Split(SplitStyle::kColumn, member);
  behind.Split(SplitStyle::kRow, member);
  EXPECT_EQ(split.Parameters()[0]->held_shape(), Shape{3});
  EXPECT_EQ(split.Statistics()[0]->held_channels(), 3);
  EXPECT_EQ(behind.Parameters()[0]->held_shape(), Shape{6});
  EXPECT_EQ(behind.Statistics()[0]->held_channels(), 6);
}

class TwoLayers : public Block {
 public:
  TwoLayers() : Block("block") {
    AddChild<LinearLayer>("up", 4, 6);
    AddChild<QkvLayer>("qkv", 8, 2, LinearLayer::Options{});
  }

 protected:
  Variables Forward(Pass&, Variables inputs) override { return inputs; }
};

TEST(SplitTest, ModelsSayWhatDoesNotDivide) {
  Model model;
  model.blocks.push_back(std::make_unique<TwoLayers>());
  EXPECT_TRUE(model.CheckSplit(5).ok()) << "nothing is split";
  model.split_plan = {{"block", SplitStyle::kColumn}};
  EXPECT_TRUE(model.CheckSplit(2).ok());
  EXPECT_THAT(std::string(model.CheckSplit(4).message()),
              AllOf(HasSubstr("'block.up' has 6 output features"), HasSubstr("4 ranks"),
                    HasSubstr("'block.qkv' has 2 attention heads")));
  model.split_plan = {{"*.up", SplitStyle::kRow}};
  EXPECT_THAT(std::string(model.CheckSplit(3).message()), HasSubstr("4 input features"));
}

}  // namespace
}  // namespace lockstep
