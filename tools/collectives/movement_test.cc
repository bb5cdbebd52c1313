#include "tools/collectives/movement.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Movement Of(Operation operation, int root = 0) {
  return MovementOf(operation, std::vector<int64_t>{1, 2, 3}, root);
}

// How many ranks' data crosses to another rank, for each flow's source.
int Crossing(const Movement& movement) {
  int crossing = 0;
  for (const Flow& flow : movement.flows) {
    for (const Cell& from : flow.from) crossing += from.rank != flow.to.rank ? 1 : 0;
  }
  return crossing;
}

TEST(MovementTest, GatherCollectsAtTheRoot) {
  const Movement movement = Of(Operation::kGather, 1);
  EXPECT_THAT(movement.before, ElementsAre(ElementsAre(1), ElementsAre(2), ElementsAre(3)));
  EXPECT_THAT(movement.after, ElementsAre(IsEmpty(), ElementsAre(1, 2, 3), IsEmpty()));
  EXPECT_THAT(movement.flows,
              ElementsAre(Flow{{{0, 0}}, {1, 0}}, Flow{{{1, 0}}, {1, 1}}, Flow{{{2, 0}}, {1, 2}}));
}

TEST(MovementTest, ScatterDealsOutTheRootsParts) {
  const Movement movement = Of(Operation::kScatter, 2);
  EXPECT_THAT(movement.before, ElementsAre(IsEmpty(), IsEmpty(), ElementsAre(1, 2, 3)));
  EXPECT_THAT(movement.after, ElementsAre(ElementsAre(1), ElementsAre(2), ElementsAre(3)));
  EXPECT_THAT(movement.flows,
              ElementsAre(Flow{{{2, 0}}, {0, 0}}, Flow{{{2, 1}}, {1, 0}}, Flow{{{2, 2}}, {2, 0}}));
}

TEST(MovementTest, ReduceScatterReducesPartByPart) {
  const Movement movement = Of(Operation::kReduceScatter);
  EXPECT_THAT(movement.flows, ElementsAre(Flow{{{0, 0}, {1, 0}, {2, 0}}, {0, 0}},
                                          Flow{{{0, 1}, {1, 1}, {2, 1}}, {1, 0}},
                                          Flow{{{0, 2}, {1, 2}, {2, 2}}, {2, 0}}));
}

TEST(MovementTest, AllToAllTransposes) {
  const Movement movement = MovementOf(Operation::kAllToAll, std::vector<int64_t>{1, 1}, 0);
  EXPECT_THAT(movement.flows, ElementsAre(Flow{{{0, 0}}, {0, 0}}, Flow{{{1, 0}}, {0, 1}},
                                          Flow{{{0, 1}}, {1, 0}}, Flow{{{1, 1}}, {1, 1}}));
}

TEST(MovementTest, MessagesGoToTheNextRank) {
  const Movement movement = MovementOf(Operation::kSend, std::vector<int64_t>{2, 2, 2}, 0);
  EXPECT_THAT(movement.before, ElementsAre(ElementsAre(2), ElementsAre(2), IsEmpty()));
  EXPECT_THAT(movement.after, ElementsAre(IsEmpty(), ElementsAre(2), ElementsAre(2)));
  EXPECT_THAT(movement.flows, ElementsAre(Flow{{{0, 0}}, {1, 0}}, Flow{{{1, 0}}, {2, 0}}));
}

TEST(MovementTest, HowMuchCrosses) {
  EXPECT_EQ(Crossing(Of(Operation::kBroadcast)), 2);
  EXPECT_EQ(Crossing(Of(Operation::kReduce)), 2);
  EXPECT_EQ(Crossing(Of(Operation::kAllReduce)), 6);
  EXPECT_EQ(Crossing(Of(Operation::kAllGather)), 6);
  EXPECT_EQ(Crossing(Of(Operation::kBarrier)), 6);
}

TEST(MovementTest, OneRankKeepsWhatItHas) {
  for (const Operation operation :
       {Operation::kAllReduce, Operation::kReduceScatter, Operation::kAllGather,
        Operation::kBroadcast, Operation::kReduce, Operation::kGather, Operation::kScatter,
        Operation::kAllToAll, Operation::kBarrier}) {
    EXPECT_THAT(MovementOf(operation, std::vector<int64_t>{4}, 0).flows,
                ElementsAre(Flow{{{0, 0}}, {0, 0}}))
        << Name(operation);
  }
  EXPECT_THAT(MovementOf(Operation::kSend, std::vector<int64_t>{4}, 0).flows, IsEmpty());
}

}  // namespace
}  // namespace lockstep
