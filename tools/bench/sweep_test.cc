#include "tools/bench/sweep.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

ABSL_DECLARE_FLAG(std::vector<std::string>, ranks);
ABSL_DECLARE_FLAG(std::vector<std::string>, operations);
ABSL_DECLARE_FLAG(int64_t, min_bytes);
ABSL_DECLARE_FLAG(int64_t, factor);

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int64_t> Sizes(const Sweep& sweep, int ranks = 2) {
  std::vector<int64_t> sizes;
  for (const TimedCall& call : CallsOf(sweep, ranks)) sizes.push_back(call.bytes());
  return sizes;
}

TEST(SweepTest, SizesGrowByTheFactorAndEndWithTheLargest) {
  const std::vector<Operation> one = {Operation::kAllReduce};
  EXPECT_THAT(Sizes({.operations = one, .min_bytes = 4, .max_bytes = 256, .factor = 4}),
              ElementsAre(4, 16, 64, 256));
  EXPECT_THAT(Sizes({.operations = one, .min_bytes = 4, .max_bytes = 100, .factor = 8}),
              ElementsAre(4, 32, 100));
  EXPECT_THAT(Sizes({.operations = one, .min_bytes = 64, .max_bytes = 64}), ElementsAre(64));
}

TEST(SweepTest, SizesThatAreRoundedToTheSameComeOnce) {
  EXPECT_THAT(Sizes({.operations = {Operation::kAllToAll, Operation::kSend},
                     .min_bytes = 4,
                     .max_bytes = 32,
                     .factor = 2},
                    4),
              ElementsAre(16, 32, 4, 8, 16, 32));
}

TEST(SweepTest, LargeNumbersDoNotOverflow) {
  const std::vector<TimedCall> calls = CallsOf({.operations = {Operation::kSend},
                                                .min_bytes = int64_t{1} << 40,
                                                .max_bytes = int64_t{1} << 60,
                                                .factor = int64_t{1} << 40},
                                               2);
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(MostElements(calls), int64_t{1} << 58);
}

TEST(SweepTest, FlagsGiveTheSweepAndErrorsNameThem) {
  absl::FlagSaver saver;
  const auto defaults = SweepFromFlags();
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_EQ(defaults->operations, TimedOperations());
  EXPECT_THAT(defaults->ranks, ElementsAre(2));

  absl::SetFlag(&FLAGS_ranks, {"2", "one"});
  EXPECT_THAT(std::string(SweepFromFlags().status().message()), HasSubstr("--ranks: 'one'"));
  absl::SetFlag(&FLAGS_ranks, {"1"});
  EXPECT_THAT(std::string(SweepFromFlags().status().message()), HasSubstr("from 2 to 1024"));
  absl::SetFlag(&FLAGS_ranks, {"2", "4"});
  EXPECT_THAT(SweepFromFlags()->ranks, ElementsAre(2, 4));
  absl::SetFlag(&FLAGS_operations, {"reduce"});
  EXPECT_THAT(SweepFromFlags()->operations, ElementsAre(Operation::kReduce));
  absl::SetFlag(&FLAGS_factor, 1);
  EXPECT_THAT(std::string(SweepFromFlags().status().message()), HasSubstr("--factor=1"));
  absl::SetFlag(&FLAGS_min_bytes, int64_t{1} << 40);
  EXPECT_THAT(std::string(SweepFromFlags().status().message()), HasSubstr("--min_bytes"));
}

TEST(SweepTest, ArgumentsCarryEverything) {
  EXPECT_THAT(
      SweepArguments({.operations = {Operation::kReduce, Operation::kSend},
                      .ranks = {2, 4},
                      .min_bytes = 8,
                      .max_bytes = 64,
                      .factor = 2,
                      .dtype = DType::kI64,
                      .in_place = true,
                      .seconds = 0.25},
                     4),
      ElementsAre("--operations=reduce,send_recv", "--ranks=4", "--min_bytes=8", "--max_bytes=64",
                  "--factor=2", "--dtype=i64", "--in_place=true", "--seconds=0.25"));
}

}  // namespace
}  // namespace lockstep
