// Holds the shipped numbers to the rows that they were fitted to, those of vTrain (Bang et al.,
// MICRO 2024) in tools/plan/measured. `fit_rows --halves` judges rows that were not fitted to.

#include <string>
#include <utility>

#include "foresight/cluster.h"
#include "foresight/dialect.h"
#include "gtest/gtest.h"
#include "tools/plan/held_to.h"
#include "tools/plan/measured_rows.h"

namespace lockstep {
namespace {

Judgement JudgementOf(const std::string& file, const std::string& dialect_name) {
  const auto cluster = ReadCluster("foresight/clusters/a100_80g.toml");
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  const auto dialect = Dialect::Read("foresight/dialects/" + dialect_name + ".toml");
  EXPECT_TRUE(dialect.ok()) << dialect.status();
  auto rows = ReadMeasuredRows("tools/plan/measured/" + file);
  EXPECT_TRUE(rows.ok()) << rows.status();
  const auto recorded = RecordRows(*std::move(rows), *dialect, *cluster);
  EXPECT_TRUE(recorded.ok()) << recorded.status();
  const auto predicted = Predict(*recorded, *dialect, *cluster);
  EXPECT_TRUE(predicted.ok()) << predicted.status();
  return Judge(recorded->rows, *predicted);
}

TEST(VtrainRowsTest, OneNode) {
  const Judgement judgement = JudgementOf("vtrain_single.csv", "vtrain_profile");
  EXPECT_EQ(judgement.rows, 720);
  EXPECT_LE(judgement.mean, 0.04) << judgement.ToString();
  EXPECT_LE(judgement.median, 0.015) << judgement.ToString();
  EXPECT_LE(judgement.regret, 0.015) << judgement.ToString();
}

// The predicted times of 32 replicas with pipelines are up to 36 % too short, and that of 64
// samples a micro-batch 47 %.
TEST(VtrainRowsTest, ManyNodes) {
  const Judgement judgement = JudgementOf("vtrain_multi.csv", "megatron_2021");
  EXPECT_EQ(judgement.rows, 54);
  EXPECT_LE(judgement.mean, 0.06) << judgement.ToString();
  EXPECT_LE(judgement.median, 0.02) << judgement.ToString();
}

}  // namespace
}  // namespace lockstep
