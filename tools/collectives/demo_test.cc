// What the ranks get, against results written by hand.

#include "tools/collectives/demo.h"

#include <string>
#include <utility>

#include "core/comm/signature.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/collectives/catalogue.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

Demo DemoOf(const DemoOptions& options) {
  absl::StatusOr<Demo> demo = RunDemo(options);
  EXPECT_TRUE(demo.ok()) << demo.status();
  return demo.ok() ? *std::move(demo) : Demo{};
}

RankData After(const DemoOptions& options) { return DemoOf(options).after; }

TEST(DemoTest, Gather) {
  EXPECT_EQ(After({.operation = Operation::kGather}), (RankData{{{0}, {1}, {2}, {3}}, {}, {}, {}}));
  EXPECT_EQ(After({.operation = Operation::kGather, .ranks = 3, .root = 2, .uneven = true}),
            (RankData{{}, {}, {{0}, {1, 1.1f}, {2, 2.1f, 2.2f}}}));
}

TEST(DemoTest, AllGather) {
  const RankData::value_type all = {{0}, {1}, {2}};
  EXPECT_EQ(After({.operation = Operation::kAllGather, .ranks = 3}), (RankData{all, all, all}));
  const RankData::value_type uneven = {{0, 0.1f}, {1, 1.1f, 1.2f}};
  EXPECT_EQ(After({.operation = Operation::kAllGather, .ranks = 2, .count = 2, .uneven = true}),
            (RankData{uneven, uneven}));
}

TEST(DemoTest, Broadcast) {
  EXPECT_EQ(After({.operation = Operation::kBroadcast, .ranks = 3, .root = 2, .count = 2}),
            (RankData{{{2, 2.1f}}, {{2, 2.1f}}, {{2, 2.1f}}}));
}

TEST(DemoTest, Scatter) {
  EXPECT_EQ(After({.operation = Operation::kScatter}), (RankData{{{1}}, {{2}}, {{3}}, {{4}}}));
  EXPECT_EQ(After({.operation = Operation::kScatter, .ranks = 3, .root = 1, .uneven = true}),
            (RankData{{{1}}, {{2, 2.1f}}, {{3, 3.1f, 3.2f}}}));
}

TEST(DemoTest, Reduce) {
  const DemoOptions options = {.operation = Operation::kReduce, .ranks = 3, .root = 1};
  EXPECT_EQ(After(options), (RankData{{}, {{6}}, {}}));
}

TEST(DemoTest, RanksBringWhatTheyAreTold) {
  const DemoOptions options = {.operation = Operation::kAllReduce, .values = {4, 1, 2, 2}};
  EXPECT_EQ(After(options), (RankData(4, {{9}})));
  EXPECT_EQ(After({.operation = Operation::kAllReduce,
                   .ranks = 3,
                   .reduce_op = ReduceOp::kProduct,
                   .values = {-3, 5, 7}}),
            (RankData(3, {{-105}})));
  EXPECT_EQ(After({.operation = Operation::kGather, .ranks = 2, .values = {40, 3}}),
            (RankData{{{40}, {3}}, {}}));
  EXPECT_EQ(After({.operation = Operation::kScatter, .ranks = 2, .values = {40, 3}}),
            (RankData{{{40}}, {{3}}}));
}

// Ranks 0 and 2, and ranks 1, 3 and 4.
TEST(DemoTest, GroupsRunTheOperationByThemselves) {
  DemoOptions options = {.operation = Operation::kAllReduce,
                         .ranks = 5,
                         .values = {4, 1, 2, 20, 300},
                         .groups = {7, 1, 7, 1, 1}};
  EXPECT_EQ(After(options), (RankData{{{6}}, {{321}}, {{6}}, {{321}}, {{321}}}));
  options.operation = Operation::kBroadcast;
  options.root = 1;  // of each group: ranks 2 and 3
  EXPECT_EQ(After(options), (RankData{{{2}}, {{20}}, {{2}}, {{20}}, {{20}}}));
  options.operation = Operation::kAllGather;
  options.root = 0;
  EXPECT_EQ(
      After(options),
      (RankData{
          {{4}, {2}}, {{1}, {20}, {300}}, {{4}, {2}}, {{1}, {20}, {300}}, {{1}, {20}, {300}}}));
  options.operation = Operation::kBarrier;
  const RankData arrived = After(options);
  EXPECT_EQ(arrived[0], (Parts{{2}}));
  EXPECT_EQ(arrived[1], (Parts{{3}}));
  for (const auto& ledger : DemoOf(options).ledgers) EXPECT_EQ(ledger.size(), 1u);
}

TEST(DemoTest, AllReduceWithEachReduction) {
  const auto result = [](ReduceOp op) {
    const Demo demo =
        DemoOf({.operation = Operation::kAllReduce, .ranks = 4, .reduce_op = op, .count = 2});
    for (const auto& parts : demo.after) EXPECT_EQ(parts, demo.after[0]);
    return demo.after.at(0).at(0);
  };
  // The ranks' elements are 1, 2, 3, 4 and 2, 4, 6, 8.
  EXPECT_EQ(result(ReduceOp::kSum), (std::vector<float>{10, 20}));
  EXPECT_EQ(result(ReduceOp::kMin), (std::vector<float>{1, 2}));
  EXPECT_EQ(result(ReduceOp::kMax), (std::vector<float>{4, 8}));
  EXPECT_EQ(result(ReduceOp::kAverage), (std::vector<float>{2.5, 5}));
  // The ranks' factors are 1, 2, 3, 1 and 2, 3, 1, 2.
  EXPECT_EQ(result(ReduceOp::kProduct), (std::vector<float>{6, 12}));
}

TEST(DemoTest, ReduceScatter) {
  EXPECT_EQ(After({.operation = Operation::kReduceScatter}),
            (RankData{{{10}}, {{20}}, {{30}}, {{40}}}));
  EXPECT_EQ(After({.operation = Operation::kReduceScatter, .ranks = 2, .uneven = true}),
            (RankData{{{3}}, {{6, 9}}}));
}

TEST(DemoTest, AllToAll) {
  EXPECT_EQ(After({.operation = Operation::kAllToAll, .ranks = 3}),
            (RankData{{{0}, {10}, {20}}, {{1}, {11}, {21}}, {{2}, {12}, {22}}}));
}

TEST(DemoTest, SendAndReceive) {
  EXPECT_EQ(After({.operation = Operation::kSend, .ranks = 3}), (RankData{{}, {{0}}, {{1}}}));
  EXPECT_EQ(After({.operation = Operation::kSend, .ranks = 1}), (RankData{{}}));
}

TEST(DemoTest, Barrier) {
  EXPECT_EQ(After({.operation = Operation::kBarrier, .ranks = 3}), (RankData{{{3}}, {{3}}, {{3}}}));
  // Which adds up arrivals, whatever reduction the other operations were asked for.
  EXPECT_EQ(After({.operation = Operation::kBarrier, .ranks = 2, .reduce_op = ReduceOp::kMin}),
            (RankData{{{2}}, {{2}}}));
}

// All sizes that the program allows pass the check of their own.
TEST(DemoTest, EverySizeRuns) {
  for (const Collective& collective : Collectives()) {
    for (int ranks = 1; ranks <= kMaxDemoRanks; ++ranks) {
      const DemoOptions options = {.operation = collective.operation,
                                   .ranks = ranks,
                                   .reduce_op = ReduceOp::kProduct,
                                   .root = ranks / 2,
                                   .count = 1 + ranks % kMaxDemoCount,
                                   .uneven = AllowsUneven(collective.operation)};
      const absl::StatusOr<Demo> demo = RunDemo(options);
      EXPECT_TRUE(demo.ok()) << collective.name << " " << ranks << ": " << demo.status();
    }
  }
}

// Moving pictures of numbers that are all alike would prove nothing.
TEST(DemoTest, WhatRanksBringTellsThemApart) {
  for (const Operation operation :
       {Operation::kAllToAll, Operation::kAllGather, Operation::kReduceScatter}) {
    const Demo demo = DemoOf({.operation = operation, .ranks = 16, .count = 8});
    for (int rank = 1; rank < 16; ++rank) {
      EXPECT_NE(demo.before[rank], demo.before[rank - 1]) << Name(operation);
    }
  }
}

TEST(DemoTest, LedgersHaveTheCall) {
  const Demo demo = DemoOf({.operation = Operation::kAllReduce, .ranks = 4, .count = 2});
  for (const auto& ledger : demo.ledgers) {
    ASSERT_EQ(ledger.size(), 1);
    EXPECT_EQ(ledger[0].signature.operation, Operation::kAllReduce);
    EXPECT_EQ(ledger[0].bytes, 8);
    EXPECT_EQ(ledger[0].wire_bytes, 2 * 8 * 3 / 4);
    EXPECT_EQ(ledger[0].state, LedgerEntry::State::kDone);
  }
  const Demo messages = DemoOf({.operation = Operation::kSend, .ranks = 3});
  EXPECT_EQ(messages.ledgers[0].size(), 1);
  EXPECT_EQ(messages.ledgers[1].size(), 2);
}

TEST(CheckDataTest, FindsAWrongElement) {
  Demo demo = DemoOf({.operation = Operation::kAllGather, .ranks = 2, .count = 2});
  EXPECT_TRUE(CheckData(demo.movement, ReduceOp::kSum, demo.before, demo.after).ok());
  demo.after[1][0][1] = 7;
  const absl::Status status = CheckData(demo.movement, ReduceOp::kSum, demo.before, demo.after);
  EXPECT_EQ(status.message(),
            "rank 1 has [0, 7] as part 0, but a serial computation gives [0, 0.1]");
}

TEST(CheckDataTest, FindsAWrongReduction) {
  const Demo demo = DemoOf({.operation = Operation::kReduce, .ranks = 3});
  EXPECT_THAT(
      std::string(CheckData(demo.movement, ReduceOp::kAverage, demo.before, demo.after).message()),
      HasSubstr("gives [2]"));
}

}  // namespace
}  // namespace lockstep
