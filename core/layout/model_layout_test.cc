#include "core/layout/model_layout.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/layout/model_tensors.h"
#include "core/nn/experts.h"
#include "core/nn/layers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

// Two blocks: a layer that tp splits by its outputs; and one that tp splits by its inputs, with a
// normalisation whose weight is frozen, and a parameter that is tied to the first layer's bias.
class Columns : public Block {
 public:
  Columns() : Block("columns"), layer_(AddChild<LinearLayer>("layer", 5, 12)) {}
  Parameter& bias() { return *layer_.bias(); }

 protected:
  Variables Forward(Pass& pass, Variables inputs) override { return {layer_(pass, inputs[0])}; }

 private:
  LinearLayer& layer_;
};

class Rows : public Block {
 public:
  explicit Rows(Parameter& bias)
      : Block("rows"),
        tied_(AddParameter("bias", bias.shape, bias.init)),
        layer_(AddChild<LinearLayer>("layer", 12, 7)),
        norm_(AddChild<BatchNormLayer>("norm", 7, Activation::kNone, std::nullopt)) {
    tied_.tied_to = &bias;
    norm_.Parameters()[0]->trainable = false;
  }

 protected:
  Variables Forward(Pass& pass, Variables inputs) override { return {layer_(pass, inputs[0])}; }

 private:
  Parameter& tied_;
  LinearLayer& layer_;
  BatchNormLayer& norm_;
};

Model MakeModel() {
  Model model;
  auto columns = std::make_unique<Columns>();
  auto rows = std::make_unique<Rows>(columns->bias());
  model.blocks.push_back(std::move(columns));
  model.blocks.push_back(std::move(rows));
  model.split_plan = {{"columns.layer", SplitStyle::kColumn}, {"rows.layer", SplitStyle::kRow}};
  return model;
}

ModelLayout MakeLayout(const MeshShape& mesh, Divided divided) {
  Model model = MakeModel();
  // The layout splits the tied copy as a tied head does itself.
  std::vector<ModelTensor> tensors = TensorsOf(model, mesh.tp);
  for (ModelTensor& tensor : tensors) {
    if (tensor.tied_to) tensor.splits = tensors[*tensor.tied_to].splits;
  }
  ModelLayoutOptions options;
  options.mesh = mesh;
  options.divided = divided;
  if (mesh.pp == 2) options.blocks = {{{0, 1}}, {{1, 2}}};
  return {std::move(tensors), std::move(options)};
}

// By tensor and element, the ranks that hold it, and how many write it.
struct Holders {
  std::vector<int> ranks;
  int writers = 0;
};
std::map<std::string, std::vector<Holders>> HoldersIn(const ModelLayout& layout) {
  std::map<std::string, std::vector<Holders>> holders;
  for (int rank = 0; rank < layout.mesh().ranks(); ++rank) {
    for (const TensorPlacement& placement : layout.Of(rank)) {
      std::vector<Holders>& elements = holders[placement.name];
      elements.resize(WholeSlice(placement.held.whole).elements);
      for (const ElementRange& range : placement.held.ElementRanges()) {
        for (int64_t i = range.in_whole; i < range.in_whole + range.elements; ++i) {
          elements[i].ranks.push_back(rank);
          elements[i].writers += placement.is_writer;
        }
      }
    }
  }
  return holders;
}

TEST(ModelLayoutTest, EveryElementIsOnTheRanksThatItSaysAndWrittenOnce) {
  for (const Divided divided :
       {Divided::kNothing, Divided::kOptimizerState, Divided::kParameters}) {
    for (const int pp : {1, 2}) {
      for (const int replicas : {1, 2}) {
        for (const int dp : {1, 2, 3}) {
          for (const int tp : {1, 2, 4}) {
            const MeshShape mesh = {.pp = pp, .replicas = replicas, .dp = dp, .tp = tp};
            SCOPED_TRACE(mesh.ToString());
            const ModelLayout layout = MakeLayout(mesh, divided);
            const auto holders = HoldersIn(layout);
            EXPECT_THAT(holders, SizeIs(9));
            for (size_t t = 0; t < layout.tensors().size(); ++t) {
              const ModelTensor& tensor = layout.tensors()[t];
              if (tensor.tied_to) continue;
              const bool is_sharded = divided != Divided::kNothing && !tensor.statistic;
              const bool is_sliced = tensor.splits[0].slice.has_value();
              const int copies = replicas * (is_sharded ? 1 : dp) * (is_sliced ? 1 : tp);
              const auto& elements = holders.at(tensor.name);
              ASSERT_THAT(elements, SizeIs(tensor.shape.elements()));
              for (int64_t i = 0; i < tensor.shape.elements(); ++i) {
                EXPECT_THAT(elements[i].ranks, SizeIs(copies)) << tensor.name << " " << i;
                EXPECT_EQ(elements[i].writers, 1) << tensor.name << " " << i;
              }
            }
          }
        }
      }
    }
  }
}

TEST(ModelLayoutTest, SlicesLieOnTheRanksWithTheirPlaceAlongTp) {
  const auto holders = HoldersIn(MakeLayout({.dp = 2, .tp = 2}, Divided::kNothing));
  // Rows 0 to 5 of 12 lie on tp 0, each with 5 elements.
  const std::vector<Holders>& elements = holders.at("columns.layer.weight");
  for (size_t i = 0; i < 60; ++i) {
    EXPECT_EQ(elements[i].ranks, (i < 30 ? std::vector<int>{0, 2} : std::vector<int>{1, 3})) << i;
  }
}

TEST(ModelLayoutTest, ATiedParameterOfAnotherRankIsAUnitByItself) {
  const ModelLayout layout = MakeLayout({.pp = 2, .dp = 2}, Divided::kParameters);
  std::vector<std::vector<std::string>> units;
  for (const int rank : {0, 2}) {
    for (const ModelLayout::Unit* unit : layout.UnitsOf(rank)) {
      units.push_back({unit->is_tied_copy ? "tied_copy" : "own"});
      for (const size_t t : unit->tensors) units.back().push_back(layout.tensors()[t].name);
    }
  }
  EXPECT_THAT(
      units, ElementsAre(
                 ElementsAre("own", "columns.layer.bias"),
                 ElementsAre("own", "columns.layer.weight"), ElementsAre("own", "rows.norm.weight"),
                 ElementsAre("own", "rows.layer.weight", "rows.layer.bias", "rows.norm.bias"),
                 ElementsAre("tied_copy", "columns.layer.bias")));
}

TEST(ModelLayoutTest, KnowsTheBytesThatARankKeeps) {
  // On boundaries of 16 elements, the first block has 64 + 16 elements, of which its bias has a
  // tie; the second 96 + 16 + 16 trained ones and 16 frozen ones. There are 7 means and variances,
  // three sums of each of these, and a count. Two shards are 2 * 32 and 2 * 16 elements for the
  // first block, 2 * 64 and 2 * 16 for the second, and 2 * 16 for the gradient of the tied one.
  constexpr int64_t kStatistics = 64 + 64 + 128 + 64, kStates = 2, kBytes = kStates * 4;
  const auto kept = [](const MeshShape& mesh, Divided divided, int rank) {
    const ModelLayout::KeptBytes bytes = MakeLayout(mesh, divided).Kept(rank, kStates);
    return std::vector<int64_t>{bytes.parameters, bytes.gradients, bytes.optimizer_state};
  };
  EXPECT_THAT(kept({}, Divided::kNothing, 0),
              ElementsAre(224 * 4 + kStatistics, (208 + 16) * 4, 208 * kBytes));
  // The second shards have 28 weights and no bias of the first block, 20 weights and all biases of
  // the second.
  constexpr int64_t kParts = 32 + 32 + 16 + 16;
  EXPECT_THAT(kept({.dp = 2}, Divided::kOptimizerState, 1),
              ElementsAre(256 * 4 + kStatistics, (224 + 32) * 4, kParts * kBytes));
  EXPECT_THAT(kept({.dp = 2}, Divided::kGradients, 1),
              ElementsAre(256 * 4 + kStatistics, (112 + 16) * 4, kParts * kBytes));
  EXPECT_THAT(kept({.dp = 2}, Divided::kParameters, 1),
              ElementsAre(128 * 4 + kStatistics, (112 + 16) * 4, kParts * kBytes));
  // The second stage has a copy of the bias, and of its gradient.
  EXPECT_THAT(kept({.pp = 2}, Divided::kNothing, 1),
              ElementsAre((144 + 16) * 4 + kStatistics, (128 + 16) * 4, 128 * kBytes));
}

// What a planner asks: all ranks of a large mesh, from one model.
TEST(ModelLayoutTest, DescribesAThousandRanks) {
  const MeshShape mesh = {.pp = 2, .replicas = 4, .dp = 32, .tp = 4};
  const ModelLayout layout = MakeLayout(mesh, Divided::kParameters);
  ASSERT_EQ(mesh.ranks(), 1024);
  int64_t elements = 0, written = 0, holders_of_first = 0;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    for (const TensorPlacement& placement : layout.Of(rank)) {
      if (placement.name == "columns.layer.weight" && placement.held.elements > 0) {
        ++holders_of_first;
      }
      if (placement.name != "rows.layer.weight") continue;
      elements += placement.held.elements;
      if (placement.is_writer) written += placement.held.elements;
    }
  }
  EXPECT_EQ(elements, 4 * 84);
  EXPECT_EQ(written, 84);
  EXPECT_EQ(holders_of_first, 16);
}

constexpr int kExperts = 4, kHidden = 6, kWidth = 3;

class Experts : public Block {
 public:
  Experts() : Block("experts") {
    AddChild<ExpertsLayer>(
        "layer", kWidth,
        ExpertsOptions{.routing = {.experts = kExperts, .chosen = 1}, .hidden = kHidden},
        Init::Normal(0.5f), Init::Normal(0.5f));
  }

 protected:
  Variables Forward(Pass&, Variables inputs) override { return inputs; }
};

// Each rank has its hidden features of its experts' gates and ups, wherever the one before was.
TEST(ModelTensorsTest, RanksDivideExpertsAndTheirHiddenFeatures) {
  constexpr int kTp = 2, kEp = 2;
  Model model;
  model.blocks.push_back(std::make_unique<Experts>());
  model.split_plan = {{"experts.layer*", SplitStyle::kColumn}};
  const std::vector<ModelTensor> tensors = TensorsOf(model, kTp, kEp);
  ASSERT_THAT(tensors, SizeIs(2));
  for (const ModelTensor& tensor : tensors) {
    const int64_t parts = tensor.shape[0] / (kExperts * kHidden);  // gate and up; down
    ASSERT_THAT(tensor.splits, SizeIs(kTp * kEp)) << tensor.name;
    for (int place = 0; place < kEp; ++place) {
      for (int index = 0; index < kTp; ++index) {
        std::vector<int64_t> expected, actual;
        for (int64_t row = 0; row < tensor.shape[0]; ++row) {
          const int64_t expert = row / (parts * kHidden), hidden = row % kHidden;
          if (expert * kEp / kExperts == place && hidden * kTp / kHidden == index) {
            expected.push_back(row);
          }
        }
        const TensorSplit& split = tensor.splits[place * kTp + index];
        ASSERT_TRUE(split.slice.has_value()) << tensor.name;
        EXPECT_EQ(split.slice->dimension, 0);
        for (const Range& range : split.slice->ranges) {
          for (int64_t i = 0; i < range.count; ++i) actual.push_back(range.first + i);
        }
        EXPECT_EQ(actual, expected) << tensor.name << ", place " << place << ", index " << index;
        EXPECT_EQ(split.elements, static_cast<int64_t>(expected.size()) * kWidth);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
