// Steps that papers report, predicted with what was fitted on vTrain's rows alone.

#include "tools/plan/published.h"

#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

void Hold(const PublishedSteps& steps) {
  for (size_t i = 0; i < steps.predicted.size(); ++i) {
    const MeasuredRow& row = steps.recorded.rows[i];
    absl::PrintF("%-20s predicted %7.2f s, measured %7.2f s, error %+5.1f %%\n", row.name,
                 steps.predicted[i], row.seconds, 100 * (steps.predicted[i] / row.seconds - 1));
  }
  const Judgement judgement = steps.Judged();
  EXPECT_LE(judgement.mean, 0.05) << judgement.ToString();
  EXPECT_LE(judgement.largest, 0.12) << judgement.ToString();
}

TEST(PublishedTest, ActivationRecomputation) {
  const auto cluster = Selene();
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto steps = ActivationRecomputation(*cluster);
  ASSERT_TRUE(steps.ok()) << steps.status();
  ASSERT_EQ(steps->predicted.size(), 8);
  Hold(*steps);

  const auto others = RefittedToTwo(*steps, *cluster);
  ASSERT_TRUE(others.ok()) << others.status();
  ASSERT_EQ(others->predicted.size(), 6);
  EXPECT_LE(others->Judged().mean, 0.03) << others->Judged().ToString();
}

TEST(PublishedTest, EfficientLargeScaleTraining) {
  const auto cluster = Selene();
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto steps = EfficientLargeScaleTraining(*cluster);
  ASSERT_TRUE(steps.ok()) << steps.status();
  ASSERT_EQ(steps->predicted.size(), 10);
  Hold(*steps);
}

}  // namespace
}  // namespace lockstep
