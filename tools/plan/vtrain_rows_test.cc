// Judges the shipped numbers on all of vTrain's rows (Bang et al., MICRO 2024;
// tools/plan/measured), and the numbers fitted to each half of the rows on the other half.
// `//tools/bench:foresight` makes the fits of the halves anew.

#include <string>
#include <utility>
#include <vector>

#include "foresight/cluster.h"
#include "foresight/dialect.h"
#include "gtest/gtest.h"
#include "tools/plan/fit.h"
#include "tools/plan/held_to.h"
#include "tools/plan/measured_rows.h"
#include "tools/plan/vtrain.h"

namespace lockstep {
namespace {

// One file, with its dialect and the shipped cluster.
class MeasuredFile {
 public:
  MeasuredFile(const std::string& file, const std::string& dialect_name) {
    auto cluster = ReadCluster("foresight/clusters/a100_80g.toml");
    EXPECT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
    auto dialect = Dialect::Read("foresight/dialects/" + dialect_name + ".toml");
    EXPECT_TRUE(dialect.ok()) << dialect.status();
    files_[0].dialect = *std::move(dialect);
    auto rows = ReadMeasuredRows("tools/plan/measured/" + file);
    EXPECT_TRUE(rows.ok()) << rows.status();
    auto recorded = RecordRows(*std::move(rows), files_[0].dialect, cluster_);
    EXPECT_TRUE(recorded.ok()) << recorded.status();
    recorded_ = *std::move(recorded);
    files_[0].recorded = &recorded_;
  }

  // All rows, by the numbers that are shipped.
  Judgement Shipped() {
    ChooseRows(0, 1, files_);
    return JudgementOf({.cluster = cluster_, .dialects = {files_[0].dialect}});
  }

  // Each half of the rows, by the numbers that were fitted to the other.
  std::vector<Judgement> Halves() {
    std::vector<Judgement> judgements;
    const auto halves = VtrainHalves();
    EXPECT_TRUE(halves.ok()) << halves.status();
    for (size_t half = 0; half < halves->size(); ++half) {
      Fit fit = {.cluster = cluster_, .dialects = {files_[0].dialect}};
      for (const auto& [name, value] : (*halves)[half]) {
        SetFitted(name, value, fit.cluster, fit.dialects);  // of the other dialect, perhaps
      }
      ChooseRows(half, 2, files_);
      judgements.push_back(JudgementOf(fit));
    }
    return judgements;
  }

 private:
  Judgement JudgementOf(const Fit& fit) const {
    const auto judgements = JudgeFit(fit, files_);
    EXPECT_TRUE(judgements.ok()) << judgements.status();
    return judgements->front();
  }

  Cluster cluster_;
  RecordedRows recorded_;
  std::vector<FitRows> files_ = std::vector<FitRows>(1);
};

TEST(VtrainRowsTest, OneNode) {
  MeasuredFile file("vtrain_single.csv", "vtrain_profile");
  const Judgement shipped = file.Shipped();
  EXPECT_EQ(shipped.rows, 720);
  EXPECT_LE(shipped.mean, 0.04) << shipped.ToString();
  EXPECT_LE(shipped.median, 0.015) << shipped.ToString();
  EXPECT_LE(shipped.regret, 0.015) << shipped.ToString();
  for (const Judgement& half : file.Halves()) {
    EXPECT_EQ(half.rows, 360);
    EXPECT_LE(half.mean, 0.04) << half.ToString();
    EXPECT_LE(half.median, 0.015) << half.ToString();
    EXPECT_LE(half.regret, 0.01) << half.ToString();
  }
}

// The predicted times of 32 replicas with pipelines are up to 36 % too short, and that of 64
// samples a micro-batch 47 %.
TEST(VtrainRowsTest, ManyNodes) {
  MeasuredFile file("vtrain_multi.csv", "megatron_2021");
  std::vector<Judgement> judgements = file.Halves();
  for (const Judgement& half : judgements) EXPECT_EQ(half.rows, 27);
  judgements.push_back(file.Shipped());
  EXPECT_EQ(judgements.back().rows, 54);
  for (const Judgement& judgement : judgements) {
    EXPECT_LE(judgement.mean, 0.06) << judgement.ToString();
    EXPECT_LE(judgement.median, 0.02) << judgement.ToString();
  }
}

}  // namespace
}  // namespace lockstep
