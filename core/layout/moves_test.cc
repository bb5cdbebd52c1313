#include "core/layout/moves.h"

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/comm/mesh_shape.h"
#include "core/layout/model_layout.h"
#include "core/nn/layers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TensorSlice RangeOf(int64_t whole, int64_t first, int64_t count) {
  return {.whole = {whole}, .first = first, .elements = count};
}

Holder On(int rank, TensorSlice slice) { return {.rank = rank, .tensors = {std::move(slice)}}; }

// Four blocks of one layer each, whose outputs or inputs tp divides.
class LayerBlock : public Block {
 public:
  explicit LayerBlock(int index)
      : Block(absl::StrCat("blocks.", index)), layer_(AddChild<LinearLayer>("layer", 12, 12)) {}

 protected:
  Variables Forward(Pass& pass, Variables inputs) override { return {layer_(pass, inputs[0])}; }

 private:
  LinearLayer& layer_;
};

struct Place {
  MeshShape mesh;
  Divided divided = Divided::kNothing;

  std::string ToString() const {
    return absl::StrCat(mesh.ToString(), " divided ", static_cast<int>(divided));
  }
};

ModelLayout LayoutOf(const Place& place) {
  Model model;
  for (int i = 0; i < 4; ++i) {
    model.blocks.push_back(std::make_unique<LayerBlock>(i));
    model.split_plan.push_back({absl::StrCat("blocks.", i, ".layer"),
                                i % 2 == 0 ? SplitStyle::kColumn : SplitStyle::kRow});
  }
  ModelLayoutOptions options = {.mesh = place.mesh, .divided = place.divided};
  const int of_rank = 4 / place.mesh.pp;
  for (int pp = 0; pp < place.mesh.pp; ++pp) {
    options.blocks.push_back({{.begin = pp * of_rank, .end = (pp + 1) * of_rank}});
  }
  return {TensorsOf(model, place.mesh.tp), std::move(options)};
}

std::vector<Holder> HoldersOf(const Place& place) {
  const ModelLayout layout = LayoutOf(place);
  std::vector<Holder> holders;
  for (int rank = 0; rank < place.mesh.ranks(); ++rank) {
    Holder& holder = holders.emplace_back(Holder{.rank = rank, .tensors = {}});
    for (const TensorPlacement& tensor : layout.Of(rank)) holder.tensors.push_back(tensor.held);
  }
  return holders;
}

std::vector<Place> Places() {
  return {{{}},
          {{.dp = 4}},
          {{.dp = 3}, Divided::kParameters},
          {{.pp = 2, .dp = 2}, Divided::kOptimizerState},
          {{.dp = 2, .tp = 3}, Divided::kParameters},
          {{.pp = 4}},
          {{.replicas = 2, .dp = 2, .cp = 2}, Divided::kParameters},
          {{.pp = 2, .tp = 2}}};
}

using Elements = std::set<std::pair<size_t, int64_t>>;  // tensor and its element

Elements ElementsOf(const Holder& holder) {
  Elements elements;
  for (size_t tensor = 0; tensor < holder.tensors.size(); ++tensor) {
    for (const ElementRange& range : holder.tensors[tensor].ElementRanges()) {
      for (int64_t i = 0; i < range.elements; ++i) elements.emplace(tensor, range.in_whole + i);
    }
  }
  return elements;
}

TEST(MovesTest, BetweenAnyTwoLayoutsEachElementArrivesOnceAndNoneThatIsThere) {
  for (const Place& before : Places()) {
    for (const Place& after : Places()) {
      SCOPED_TRACE(before.ToString() + " -> " + after.ToString());
      const std::vector<Holder> from = HoldersOf(before), to = HoldersOf(after);
      const auto moves = PlanMoves(from, to);
      ASSERT_TRUE(moves.ok()) << moves.status();
      std::vector<Elements> arrived(to.size()), had;
      for (const Holder& holder : from) had.push_back(ElementsOf(holder));
      for (const Move& move : *moves) {
        for (int64_t i = 0; i < move.elements.count; ++i) {
          const std::pair<size_t, int64_t> element = {move.tensor, move.elements.first + i};
          EXPECT_TRUE(arrived[move.to].insert(element).second) << "twice";
          EXPECT_TRUE(had[move.from].contains(element)) << "sent by who lacks it";
          if (from[move.from].rank == to[move.to].rank) continue;
          const auto own = static_cast<size_t>(to[move.to].rank);
          EXPECT_FALSE(own < had.size() && had[own].contains(element)) << "sent for nothing";
        }
      }
      for (size_t i = 0; i < to.size(); ++i) EXPECT_EQ(arrived[i], ElementsOf(to[i])) << i;
    }
  }
}

TEST(MovesTest, AMeshThatStaysSendsNothing) {
  for (const Place& place : Places()) {
    const std::vector<Holder> holders = HoldersOf(place);
    const auto moves = PlanMoves(holders, holders);
    ASSERT_TRUE(moves.ok()) << moves.status();
    for (const Move& move : *moves) EXPECT_EQ(move.from, move.to) << place.ToString();
  }
}

TEST(MovesTest, RanksThatHaveTheSameTakeTurnsToSendIt) {
  const std::vector<Holder> from = {On(0, RangeOf(8, 0, 8)), On(1, RangeOf(8, 0, 8))};
  std::vector<Holder> to = from;
  for (int rank = 2; rank < 6; ++rank) to.push_back(On(rank, RangeOf(8, 0, 8)));
  const auto moves = PlanMoves(from, to);
  ASSERT_TRUE(moves.ok()) << moves.status();
  std::map<size_t, int64_t> sent;
  for (const Move& move : *moves) {
    if (move.from != move.to) sent[move.from] += move.elements.count;
  }
  EXPECT_THAT(sent, ElementsAre(std::pair(0, 16), std::pair(1, 16)));
}

TEST(MovesTest, ARankTakesWhatACopyOnItselfHas) {
  // Rank 2 has died; rank 1 has a copy of its elements beside its own.
  const std::vector<Holder> from = {On(0, RangeOf(9, 0, 3)), On(1, RangeOf(9, 3, 3)),
                                    On(1, RangeOf(9, 6, 3))};
  const std::vector<Holder> to = {On(0, RangeOf(9, 0, 5)), On(1, RangeOf(9, 5, 4))};
  EXPECT_THAT(PlanMoves(from, to).value(),
              ElementsAre(Move{.tensor = 0, .from = 0, .to = 0, .elements = {0, 3}},
                          Move{.tensor = 0, .from = 1, .to = 0, .elements = {3, 2}},
                          Move{.tensor = 0, .from = 1, .to = 1, .elements = {5, 1}},
                          Move{.tensor = 0, .from = 2, .to = 1, .elements = {6, 3}}));
}

TEST(MovesTest, WhatNobodyHasIsAnError) {
  const std::vector<Holder> from = {On(0, RangeOf(9, 0, 3)), On(1, RangeOf(9, 6, 3))};
  const auto moves = PlanMoves(from, {On(0, RangeOf(9, 0, 9))});
  EXPECT_TRUE(absl::IsDataLoss(moves.status()));
  EXPECT_THAT(std::string(moves.status().message()), HasSubstr("element 3 of tensor 0"));
}

}  // namespace
}  // namespace lockstep
