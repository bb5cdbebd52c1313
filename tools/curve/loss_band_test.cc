// The band of made-up curves: its rate of false alarms against the closed formula, its files, and
// what is said of curves in it.

#include "tools/curve/loss_band.h"

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/base/file.h"
#include "core/report/metrics.h"
#include "core/report/row_checksums.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/curve/band_report.h"
#include "tools/report/html.h"
#include "tools/report/text.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Curve = std::vector<LossPoint>;

Curve CurveOf(const std::vector<double>& losses) {
  Curve curve;
  for (const double loss : losses) curve.push_back({.step = std::ssize(curve), .loss = loss});
  return curve;
}

// A curve whose deviations have heavy tails, grow, and depend on each other, as those of chaotic
// training do.
Curve RandomCurve(std::mt19937& random, int64_t steps) {
  std::normal_distribution<double> normal;
  const double scale = 1e-5 * std::exp(1.5 * normal(random));
  double deviation = 0;
  std::vector<double> losses;
  for (int64_t step = 0; step < steps; ++step) {
    deviation = 1.2 * deviation + scale * normal(random);
    losses.push_back(3.0 / (1.0 + 0.1 * static_cast<double>(step)) + deviation);
  }
  return CurveOf(losses);
}

std::vector<Curve> RandomCurves(std::mt19937& random, int64_t count, int64_t steps) {
  std::vector<Curve> curves;
  for (int64_t i = 0; i < count; ++i) curves.push_back(RandomCurve(random, steps));
  return curves;
}

// The rank of a further run's score among n others is uniform: the band misses it with probability
// (n + 1 - k) / (n + 1), whatever the number of steps.
TEST(LossBandTest, FurtherCurvesLeaveItAsOftenAsTheFormulaSays) {
  struct Case {
    int64_t runs;
    double rate, exact;
  };
  for (const Case& each : {Case{24, 0.1, 1.0 / 17}, Case{57, 0.2, 7.0 / 39}}) {
    constexpr int kBands = 1500;
    for (const int64_t steps : {1, 30}) {
      std::mt19937 random(7);
      int alarms = 0;
      for (int i = 0; i < kBands; ++i) {
        const LossBand band =
            MakeBand("w", RandomCurves(random, each.runs, steps), each.rate).value();
        alarms += PlaceInBand(RandomCurve(random, steps), band)->outside_from.has_value() ? 1 : 0;
      }
      const double deviation = std::sqrt(each.exact * (1 - each.exact) / kBands);
      EXPECT_NEAR(alarms / double{kBands}, each.exact, 3.5 * deviation) << steps << " steps";
      EXPECT_LE(each.exact, each.rate);
    }
  }
}

TEST(LossBandTest, MeanAndSpreadAreThoseOfTheFirstThird) {
  std::vector<Curve> curves = {CurveOf({2, 3, 4, 4, 4, 4}), CurveOf({4, 3, 6, 4, 4, 4})};
  for (int i = 0; i < 4; ++i) curves.push_back(CurveOf({3, 3, 5, 4, 4, 3}));
  const LossBand band = MakeBand("w", curves, 0.25).value();
  ASSERT_EQ(band.steps.size(), 6u);
  EXPECT_EQ(band.steps[0].mean, 3);
  // Mean square deviations, of two runs: 2, 0, 2, 0, 0, 0. Each spread has up to five of them.
  EXPECT_DOUBLE_EQ(band.steps[0].spread, std::sqrt(2.0));
  EXPECT_DOUBLE_EQ(band.steps[1].spread, 1);
  EXPECT_DOUBLE_EQ(band.steps[4].spread, std::sqrt(4.0 / 5));
  EXPECT_DOUBLE_EQ(band.steps[5].spread, std::sqrt(2.0 / 5));
  const double critical = 1 / std::sqrt(2.0 / 5);  // the four others are 1 from the mean at the end
  EXPECT_EQ(band.scores.size(), 4u);
  EXPECT_DOUBLE_EQ(band.scores[0], critical);
  EXPECT_DOUBLE_EQ(band.steps[0].highest, 3 + critical * std::sqrt(2.0));
  EXPECT_DOUBLE_EQ(band.steps[0].lowest, 3 - critical * std::sqrt(2.0));
}

// Runs of equal bits have a spread all the same: that of rounding.
TEST(LossBandTest, EqualRunsHaveTheSpreadOfRounding) {
  const std::vector<Curve> curves(6, CurveOf({2, 1}));
  const LossBand band = MakeBand("w", curves, 0.25).value();
  EXPECT_EQ(band.steps[0].spread, 0x1p-23);
  EXPECT_EQ(band.steps[1].spread, 0x1p-24);
  // A loss may be rounded to a float, and is inside.
  EXPECT_EQ(band.steps[1].highest, 1 + 0x1p-24);
  EXPECT_EQ(band.steps[1].lowest, 1 - 0x1p-24);
}

TEST(LossBandTest, FewestRunsAllowTheRate) {
  EXPECT_EQ(FewestRuns(0.05), 28);   // 9 and 19: the largest of 19 scores
  EXPECT_EQ(FewestRuns(0.01), 148);  // 49 and 99
  std::mt19937 random(1);
  EXPECT_TRUE(MakeBand("w", RandomCurves(random, 28, 3), 0.05).ok());
  EXPECT_THAT(MakeBand("w", RandomCurves(random, 27, 3), 0.05).status().message(),
              HasSubstr("takes 28 runs, and there are 27"));
}

TEST(LossBandTest, RefusesCurvesThatDoNotGoTogether) {
  std::vector<Curve> curves(6, CurveOf({2, 1}));
  curves[3].pop_back();
  EXPECT_THAT(MakeBand("w", curves, 0.25).status().message(),
              HasSubstr("run 3 has 1 losses, and run 0 has 2"));
  curves[3] = {{0, 2}, {2, 1}};
  EXPECT_THAT(MakeBand("w", curves, 0.25).status().message(),
              HasSubstr("run 3 has step 2 where run 0 has step 1"));
  curves[3] = CurveOf({2, std::nan("")});
  EXPECT_THAT(MakeBand("w", curves, 0.25).status().message(),
              HasSubstr("the loss of run 3 is not finite at step 1"));
  EXPECT_THAT(MakeBand("w", curves, 1).status().message(), HasSubstr("not between 0 and 1"));
}

class PlacedTest : public testing::Test {
 protected:
  PlacedTest() {
    std::mt19937 random(3);
    band_ = MakeBand("tiny", RandomCurves(random, 30, 10), 0.05).value();
    for (const BandStep& step : band_.steps) mean_.push_back({step.step, step.mean});
    path_ = testing::TempDir() + "/band.csv";
  }

  LossBand band_;
  Curve mean_;
  std::string path_;
};

TEST_F(PlacedTest, NamesTheFirstStepOutside) {
  EXPECT_FALSE(PlaceInBand(mean_, band_)->outside_from.has_value());
  Curve curve = mean_;
  curve[2].loss = band_.steps[2].highest;
  EXPECT_FALSE(PlaceInBand(curve, band_)->outside_from.has_value());
  for (size_t at = 4; at < curve.size(); ++at) {
    curve[at].loss = band_.steps[at].lowest - 2 * band_.steps[at].spread;
  }
  const BandPlacement placement = PlaceInBand(curve, band_).value();
  EXPECT_EQ(placement.outside_from, 4);
  EXPECT_EQ(placement.outside, 6);
  EXPECT_EQ(placement.compared, 10);
  EXPECT_EQ(placement.as_far, 0);
  EXPECT_NEAR(placement.score, band_.scores.back() + 2, 1e-6);
  EXPECT_THAT(placement.ToString(band_),
              AllOf(HasSubstr("outside from step 4"), HasSubstr("none of 20 runs went as far")));
}

TEST_F(PlacedTest, CurvesMayHaveOtherStepsToo) {
  const Curve logged = {{0, mean_[0].loss}, {5, 100}, {10, 100}, {15, 100}};
  const BandPlacement placement = PlaceInBand(logged, band_).value();
  EXPECT_EQ(placement.compared, 2);
  EXPECT_EQ(placement.outside_from, 5);
  EXPECT_EQ(placement.outside, 1);
  EXPECT_THAT(PlaceInBand({{10, 1}, {11, 1}}, band_).status().message(),
              HasSubstr("has none of the band's steps, 0 to 9"));
  EXPECT_FALSE(PlaceInBand({}, band_).ok());
}

TEST_F(PlacedTest, LossesThatAreNotFiniteAreOutside) {
  for (const double loss : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    Curve curve = mean_;
    curve[7].loss = loss;
    const BandPlacement placement = PlaceInBand(curve, band_).value();
    EXPECT_EQ(placement.outside_from, 7);
    EXPECT_EQ(placement.farthest, 7);
    EXPECT_TRUE(std::isinf(placement.score));
  }
}

TEST_F(PlacedTest, FilesKeepEveryBit) {
  ASSERT_TRUE(WriteBand(path_, band_).ok());
  const absl::StatusOr<LossBand> read = ReadBand(path_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, band_);
  EXPECT_THAT(ReadFile(path_).value(), HasSubstr("\nstep,lowest,highest,mean,spread,count\n0,"));
}

TEST_F(PlacedTest, DamagedFilesAreRefused) {
  ASSERT_TRUE(WriteBand(path_, band_).ok());
  const std::string whole = ReadFile(path_).value();
  const auto refused = [this](const std::string& text) {
    EXPECT_TRUE(WriteFileAtomically(path_, text).ok());
    const absl::Status status = ReadBand(path_).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr(path_));
    return std::string(status.message());
  };
  EXPECT_THAT(refused(""), HasSubstr(":1: this is no band of losses"));
  EXPECT_THAT(refused("step,loss\n0,1\n1,1\n2,1\n"), HasSubstr(":1: this is no band of losses"));
  EXPECT_THAT(refused(whole.substr(0, whole.size() - 9)), HasSubstr("cut short"));
  EXPECT_THAT(refused(absl::StrReplaceAll(whole, {{"\"scores\"", "\"scares\""}})),
              HasSubstr(":1: no description of a band"));
  EXPECT_THAT(refused(absl::StrReplaceAll(whole, {{"0.05", "0.01"}})),
              HasSubstr(":1: scores that do not fit the rate"));
  EXPECT_THAT(refused(absl::StrReplaceAll(whole, {{"\n3,", "\nthree,"}})),
              HasSubstr(":6: 'three,"));
  EXPECT_THAT(refused(absl::StrReplaceAll(whole, {{"\n3,", "\n1,"}})),
              HasSubstr("contradicts itself"));
  EXPECT_FALSE(ReadBand(path_ + ".none").ok());
}

// Each row can be read, and would put the run outside of the band.
TEST_F(PlacedTest, RowsOfARunThatHaveChangedAreNamed) {
  const std::string run = testing::TempDir() + "/placed_run", losses = run + "/losses.csv";
  RemoveTree(run);
  ASSERT_TRUE(MakeDirectories(run).ok());
  ASSERT_TRUE(WriteFileAtomically(losses, "step,loss\n0,2.5\n1,1.5\n").ok());
  RowChecksums checksums(run, {{.name = "losses.csv", .format = &kLossesCsv}}, /*first_step=*/0);
  ASSERT_TRUE(checksums.Add(2).ok());
  EXPECT_TRUE(ReadNamedCurve(run).ok());
  ASSERT_TRUE(WriteFileAtomically(losses, "step,loss\n0,2.5\n1,3.5\n").ok());
  for (const std::string& path : {run, losses}) {
    EXPECT_THAT(ReadNamedCurve(path).status().message(),
                HasSubstr("/losses.csv: the rows of the steps 0 to 1 are not those"));
  }
}

TEST_F(PlacedTest, TheReportPlacesEachCurve) {
  Curve far = mean_;
  far[6].loss += 1;
  const absl::StatusOr<Section> section = BandSection(band_, {{"ours", mean_}, {"theirs", far}});
  ASSERT_TRUE(section.ok()) << section.status();
  const Report report = {.title = "t", .sections = {*section}};
  EXPECT_THAT(TextOf(report), AllOf(HasSubstr("In the band of tiny"), HasSubstr("inside (at most"),
                                    HasSubstr("outside from step 6")));
  EXPECT_THAT(HtmlOf(report), AllOf(HasSubstr("limit of the band"), HasSubstr("theirs")));
  EXPECT_THAT(BandSection(band_, {{"late", {{99, 1}}}}).status().message(),
              HasSubstr("late: has none of the band's steps"));
}

}  // namespace
}  // namespace lockstep
