#include "tools/plan/fit.h"

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "foresight/cluster.h"
#include "foresight/dialect.h"
#include "gtest/gtest.h"
#include "tools/plan/held_to.h"
#include "tools/plan/measured_rows.h"
#include "tools/plan/vtrain.h"

namespace lockstep {
namespace {

class FitTest : public testing::Test {
 protected:
  void SetUp() override {
    auto cluster = ReadCluster("foresight/clusters/a100_80g.toml");
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
    auto dialect = Dialect::Read("foresight/dialects/megatron_2021.toml");
    ASSERT_TRUE(dialect.ok()) << dialect.status();
    dialect_ = *std::move(dialect);
    std::vector<MeasuredRow> rows;
    for (const int64_t width : {512, 1024}) {
      for (const int64_t micro_batch : {1, 4, 16}) {
        for (const int64_t tp : {1, 2}) {
          MeasuredRow row;
          row.gpus = tp;
          row.batch = 16;
          row.micro_batch = micro_batch;
          row.width = width;
          row.heads = 8;
          row.layers = 2;
          row.context = 512;
          row.tp = tp;
          row.seconds = 1;
          rows.push_back(row);
        }
      }
    }
    auto recorded = RecordRows(std::move(rows), dialect_, cluster_);
    ASSERT_TRUE(recorded.ok()) << recorded.status();
    recorded_ = *std::move(recorded);
  }

  // "Measures" the rows: with these numbers, and one row far off.
  std::vector<FitRows> MeasuredWith(double product_efficiency, double host_forward) {
    Cluster cluster = cluster_;
    std::vector<Dialect> dialects = {dialect_};
    EXPECT_TRUE(SetFitted("product_efficiency", product_efficiency, cluster, dialects));
    EXPECT_TRUE(SetFitted("host_forward", host_forward, cluster, dialects));
    const auto seconds = Predict(recorded_, dialects[0], cluster);
    EXPECT_TRUE(seconds.ok()) << seconds.status();
    FitRows rows;
    rows.recorded = &recorded_;
    rows.dialect = dialect_;
    for (size_t i = 0; i < seconds->size(); ++i) {
      recorded_.rows[i].seconds = (*seconds)[i] * (i == 3 ? 2 : 1);
      rows.chosen.push_back(i);
    }
    return {rows};
  }

  Cluster cluster_;
  Dialect dialect_;
  RecordedRows recorded_;
};

TEST_F(FitTest, FindsWhatRowsWereMadeFromBesideAnOutlier) {
  const std::vector<FitRows> rows = MeasuredWith(0.6, 3e-5);
  const std::vector<FitParameter> parameters = {{"product_efficiency", 0.3, 1},
                                                {"host_forward", 1e-6, 1e-4}};
  const auto fit = FitTo(rows, cluster_, parameters);
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_NEAR(fit->cluster.fitted.at("product_efficiency"), 0.6, 0.012);
  EXPECT_NEAR(fit->dialects[0].Fitted("host_forward"), 3e-5, 1e-6);
  // Twice the same.
  const auto again = FitTo(rows, cluster_, parameters);
  EXPECT_EQ(again->cluster.fitted, fit->cluster.fitted);
  EXPECT_EQ(again->cost, fit->cost);
}

TEST_F(FitTest, KeepsToBounds) {
  const auto fit = FitTo(MeasuredWith(0.9, 6e-5), cluster_, {{"product_efficiency", 0.3, 0.7}});
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_DOUBLE_EQ(fit->cluster.fitted.at("product_efficiency"), 0.7);
}

TEST_F(FitTest, RefusesWhatIsNoParameter) {
  const std::vector<FitRows> rows = MeasuredWith(0.6, 3e-5);
  EXPECT_NE(FitTo(rows, cluster_, {{"colour", 0, 1}}).status().message().find("'colour'"),
            std::string::npos);
  EXPECT_NE(FitTo(rows, cluster_, {{"skew", 1, 0}}).status().message().find("no range"),
            std::string::npos);
}

// Numbers that are fitted, of the cluster and of both dialects together.
TEST(VtrainFitTest, HasFewerThan25Numbers) {
  const auto cluster = ReadCluster("foresight/clusters/a100_80g.toml");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  std::set<std::string> names;
  for (const auto& [name, value] : cluster->fitted) names.insert(name);
  for (const char* file : {"megatron_2021", "vtrain_profile"}) {
    const auto dialect = Dialect::Read(std::string("foresight/dialects/") + file + ".toml");
    ASSERT_TRUE(dialect.ok()) << dialect.status();
    for (const auto& [name, value] : dialect->fitted()) names.insert(name);
  }
  EXPECT_LT(names.size(), 25);
  EXPECT_LE(VtrainParameters().size(), names.size());
  for (const FitParameter& parameter : VtrainParameters()) {
    EXPECT_TRUE(names.contains(parameter.name)) << parameter.name;
  }
}

// `fit_rows --halves` in small, because the whole takes minutes: two numbers that are far off are
// fitted to every other one of 30 measured rows, and the rows between are judged.
TEST(VtrainFitTest, FitsOneHalfOfSomeRowsAndForetellsTheOther) {
  auto cluster = ReadCluster("foresight/clusters/a100_80g.toml");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto dialect = Dialect::Read("foresight/dialects/vtrain_profile.toml");
  ASSERT_TRUE(dialect.ok()) << dialect.status();
  const auto all = ReadMeasuredRows("tools/plan/measured/vtrain_single.csv");
  ASSERT_TRUE(all.ok()) << all.status();
  std::vector<MeasuredRow> some;
  for (size_t i = 0; i < all->size(); i += 24) some.push_back((*all)[i]);
  const auto recorded = RecordRows(some, *dialect, *cluster);
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  std::vector<Dialect> dialects = {*dialect};
  ASSERT_TRUE(SetFitted("product_efficiency", 0.5, *cluster, dialects));
  ASSERT_TRUE(SetFitted("host_forward", 2e-5, *cluster, dialects));
  std::vector<FitRows> rows(1);
  rows[0].recorded = &*recorded;
  rows[0].dialect = dialects[0];
  const std::vector<FitParameter> parameters = {{"product_efficiency", 0.4, 1},
                                                {"host_forward", 2e-6, 1.2e-4}};
  for (const size_t first : {0, 1}) {
    ChooseRows(first, 2, rows);
    const auto fit = FitTo(rows, *cluster, parameters);
    ASSERT_TRUE(fit.ok()) << fit.status();
    const auto judgements = JudgeFit(*fit, rows);
    ASSERT_TRUE(judgements.ok()) << judgements.status();
    EXPECT_EQ(judgements->front().rows, some.size() / 2);
    EXPECT_LE(judgements->front().mean, 0.08) << judgements->front().ToString();
    EXPECT_LE(judgements->front().median, 0.04) << judgements->front().ToString();
  }
}

TEST(JudgeTest, RegretIsOfGroupsThatDifferInMesh) {
  std::vector<MeasuredRow> rows(4);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].width = i < 3 ? 8 : 16;
    rows[i].tp = static_cast<int64_t>(i) + 1;
  }
  const double seconds[] = {1.0, 1.1, 2.0, 4.0};
  for (size_t i = 0; i < rows.size(); ++i) rows[i].seconds = seconds[i];
  const Judgement judgement = Judge(rows, {1.5, 1.1, 2.0, 3.0});
  EXPECT_DOUBLE_EQ(judgement.mean, (0.5 + 0.25) / 4);
  EXPECT_DOUBLE_EQ(judgement.median, 0.125);
  EXPECT_DOUBLE_EQ(judgement.largest, 0.5);
  EXPECT_NEAR(judgement.regret, 0.05, 1e-12);
  EXPECT_NEAR(judgement.largest_regret, 0.1, 1e-12);

  ASSERT_EQ(judgement.groups.size(), 2);
  const JudgedGroup& three = judgement.groups[0];
  EXPECT_EQ(three.name, "1 GPUs, batch 1, 1 x 8, 1 heads, sequence 1");
  EXPECT_EQ(three.rows, 3);
  EXPECT_EQ(three.preferred, "tp 2, dp 1, pp 1, micro-batch 1");
  EXPECT_EQ(three.best, "tp 1, dp 1, pp 1, micro-batch 1");
  EXPECT_NEAR(three.regret, 0.1, 1e-12);
  const JudgedGroup& one = judgement.groups[1];
  EXPECT_EQ(one.rows, 1);
  EXPECT_EQ(one.preferred, one.best);
  EXPECT_EQ(one.regret, 0);

  const Table table = RegretByGroup(judgement);
  EXPECT_EQ(table.title, "regret by group; 1 groups of one row are left out");
  ASSERT_EQ(table.rows.size(), 1);
  EXPECT_EQ(table.rows[0],
            (std::vector<std::string>{three.name, "3", three.preferred, three.best, "10.00 %"}));
}

}  // namespace
}  // namespace lockstep
