#include "tools/compare/tables.h"

#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

RunRecord Scaled(std::vector<double> scales, std::vector<int64_t> skipped) {
  RunRecord run;
  run.loss_scales = std::move(scales);
  run.skipped_steps = std::move(skipped);
  return run;
}

TEST(LossScaleLineTest, DrawsEachPowerOfTwoAsALevel) {
  EXPECT_EQ(LossScaleLine(Scaled({128, 64, 32, 16, 8, 4, 2, 1}, {0, 1, 2, 3, 4, 5, 6})),
            "128 █▇▆▅▄▃▂▁ 1, lowest 1, highest 128; skipped 7 steps: 0, 1, 2, 3, 4, 5, 6");
}

TEST(LossScaleLineTest, AScaleThatStaysIsALineAtTheTop) {
  EXPECT_EQ(LossScaleLine(Scaled({8, 8, 8}, {})), "8 ███ 8; skipped 0 steps");
}

TEST(LossScaleLineTest, LongRunsShowTheirDips) {
  std::vector<double> scales(1000, 1024);
  scales[777] = 8;
  EXPECT_THAT(LossScaleLine(Scaled(scales, {776})), HasSubstr("█▁█"));
  EXPECT_THAT(LossScaleLine(Scaled(scales, {776})), HasSubstr("skipped 1 step: 776"));
}

TEST(LossScaleLineTest, NamesTheFirstOfManySkippedSteps) {
  EXPECT_THAT(LossScaleLine(Scaled({1}, {1, 2, 3, 4, 5, 6, 7, 8, 9})),
              HasSubstr("skipped 9 steps: 1, 2, 3, 4, 5, 6, 7, 8, ..."));
}

TEST(LossScaleLineTest, NothingWhereLossesAreNotScaled) {
  EXPECT_EQ(LossScaleLine(RunRecord()), "");
}

}  // namespace
}  // namespace lockstep
