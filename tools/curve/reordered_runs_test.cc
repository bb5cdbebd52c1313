// What workloads admit, and that such runs differ by rounding and by nothing else.

#include "tools/curve/reordered_runs.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "strategies/single/single.h"
#include "tools/curve/reorderings.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kGpt[] = R"(name = "small"
batch = {size = 8}
cut = {shards = 2, micro_batches = 1, tokens = 2, features = 2}
train = {steps = 9, clip_norm = 1.0}
schedule = {learning_rate = 0.01, total_steps = 9}
optimizer = {kind = "adamw"}
run = {threads = 1}
[model]
kind = "transformer"
layers = 2
heads = 2
width = 16
[data]
kind = "markov"
context = 16
validation_samples = 8
)";

constexpr char kResNet[] = R"(name = "small_resnet"
batch = {size = 8}
cut = {shards = 2, micro_batches = 2}
train = {steps = 9}
schedule = {learning_rate = 0.01, total_steps = 9}
optimizer = {kind = "sgd"}
model = {kind = "resnet", width = 4}
data = {kind = "shapes"}
)";

class ReorderedRunsTest : public testing::Test {
 protected:
  ReorderedRunsTest() : folder_(testing::TempDir() + "/reordered") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

  ReorderedRunsOptions Options(const std::string& workload,
                               const std::vector<std::string>& assignments = {}) const {
    const std::string path = folder_ + "/workload.toml";
    EXPECT_TRUE(WriteFileAtomically(path, workload).ok());
    return {.workload = {.configs = {path}, .assignments = assignments, .out = folder_, .data = ""},
            .steps = 4,
            .runs = 6,
            .seed = 1};
  }

  Reorderings Admitted(const ReorderedRunsOptions& options) const {
    const absl::StatusOr<TrainingRun> run = CheckReorderedRun(options, SingleStrategy());
    EXPECT_TRUE(run.ok()) << run.status();
    absl::StatusOr<Reorderings> reorderings = Reorderings::Of(*run);
    EXPECT_TRUE(reorderings.ok()) << reorderings.status();
    return *std::move(reorderings);
  }

  static std::set<std::string> Drawn(const Reorderings& reorderings) {
    std::set<std::string> drawn;
    for (uint64_t number = 0; number < 500; ++number) {
      for (const std::string& each : reorderings.Draw(3, number).assignments) drawn.insert(each);
    }
    return drawn;
  }

  std::vector<LossPoint> Train(const ReorderedRunsOptions& options, const Reordering& reordering) {
    absl::StatusOr<std::vector<LossPoint>> losses =
        TrainReordered(options, SingleStrategy(), reordering);
    EXPECT_TRUE(losses.ok()) << losses.status();
    return losses.ok() ? *std::move(losses) : std::vector<LossPoint>();
  }

  const std::string folder_;
};

// 8 samples: 1 + 2 + 3 + 4 ways of shards and micro-batches; 16 tokens in 1, 2 or 4 leaves; two
// heads in 1 or 2.
TEST_F(ReorderedRunsTest, ATransformerAdmitsAllCutsAndOrders) {
  const Reorderings gpt = Admitted(Options(kGpt));
  EXPECT_EQ(gpt.count(), 10 * 3 * 2);
  EXPECT_TRUE(gpt.reorders_samples());
  EXPECT_THAT(Drawn(gpt), AllOf(Contains("cut.shards=8"), Contains("cut.micro_batches=8"),
                                Contains("cut.tokens=4"), Contains("cut.features=1"),
                                Not(Contains(HasSubstr("precision"))),
                                Not(Contains("cut.shards=3")), Not(Contains("cut.features=3"))));
}

// Masks belong to places in a micro-batch: two shards of one micro-batch, or one of two; features.
TEST_F(ReorderedRunsTest, DropoutKeepsMicroBatchesAndTheirRows) {
  const ReorderedRunsOptions options = Options(kGpt, {"model.dropout=0.1"});
  const Reorderings gpt = Admitted(options);
  EXPECT_EQ(gpt.count(), 2 * 2);
  EXPECT_FALSE(gpt.Draw(1, 0).sample_order.has_value());
  const std::vector<LossPoint> own = Train(options, {});
  for (uint64_t number = 0; number < 8; ++number) {
    EXPECT_NEAR(Train(options, gpt.Draw(1, number))[0].loss, own[0].loss, 1e-6 * own[0].loss);
  }
}

TEST_F(ReorderedRunsTest, SixteenBitsAdmitOtherPointsOfRounding) {
  const ReorderedRunsOptions options = Options(kGpt, {"precision.compute=bf16"});
  const Reorderings gpt = Admitted(options);
  EXPECT_THAT(Drawn(gpt),
              AllOf(Contains("precision.reduce=fp32"), Contains("precision.reduce=bf16")));
  for (uint64_t number = 0; number < 6;
       ++number) {  // every value that is drawn is one that runs take
    EXPECT_EQ(Train(options, gpt.Draw(1, number)).size(), 4u);
  }
}

// Batch statistics are those of the workload's micro-batches, four in all.
TEST_F(ReorderedRunsTest, BatchStatisticsKeepTheMicroBatches) {
  const Reorderings resnet = Admitted(Options(kResNet));
  EXPECT_TRUE(resnet.reorders_samples());
  for (uint64_t number = 0; number < 50; ++number) {
    EXPECT_THAT(resnet.Draw(1, number).assignments,
                testing::AnyOf(AllOf(Contains("cut.shards=1"), Contains("cut.micro_batches=4")),
                               AllOf(Contains("cut.shards=2"), Contains("cut.micro_batches=2")),
                               AllOf(Contains("cut.shards=4"), Contains("cut.micro_batches=1"))));
    EXPECT_THAT(resnet.Draw(1, number).assignments, Each(Not(HasSubstr("tokens"))));
  }
}

TEST_F(ReorderedRunsTest, DrawsFollowSeedAndNumber) {
  const Reorderings gpt = Admitted(Options(kGpt));
  EXPECT_EQ(gpt.Draw(1, 5).ToString(), gpt.Draw(1, 5).ToString());
  EXPECT_EQ(gpt.Draw(1, 5).sample_order, gpt.Draw(1, 5).sample_order);
  EXPECT_NE(gpt.Draw(1, 5).sample_order, gpt.Draw(1, 6).sample_order);
  EXPECT_NE(gpt.Draw(1, 5).sample_order, gpt.Draw(2, 5).sample_order);
}

// A reordering that is left out gives the workload's own bits; each of the others moves losses, by
// less than a mistake in the first digit of a gradient would.
TEST_F(ReorderedRunsTest, EachReorderingMovesLossesByRounding) {
  for (const char* workload : {kGpt, kResNet}) {
    ReorderedRunsOptions options = Options(workload);
    const std::vector<LossPoint> own = Train(options, {});
    ASSERT_EQ(own.size(), 4u);
    EXPECT_EQ(Train(options, {}), own);
    options.resumed_at = 2;
    EXPECT_EQ(Train(options, {}), own);
    options.resumed_at = 0;
    const bool is_gpt = workload == kGpt;
    std::vector<Reordering> reorderings = {{.sample_order = 7}};
    if (is_gpt) {
      reorderings.push_back({.assignments = {"cut.tokens=1"}});
      reorderings.push_back({.assignments = {"cut.features=1"}});
      reorderings.push_back({.assignments = {"cut.shards=8"}});
    } else {
      reorderings.push_back({.assignments = {"cut.shards=1", "cut.micro_batches=4"}});
    }
    for (const Reordering& reordering : reorderings) {
      const std::vector<LossPoint> losses = Train(options, reordering);
      ASSERT_EQ(losses.size(), 4u);
      EXPECT_NE(losses, own) << reordering.ToString();
      for (size_t step = 0; step < own.size(); ++step) {
        EXPECT_NEAR(losses[step].loss, own[step].loss, 1e-4 * own[step].loss)
            << reordering.ToString();
      }
    }
  }
}

TEST_F(ReorderedRunsTest, AllRunsComeInTheOrderOfTheirNumbers) {
  ReorderedRunsOptions options = Options(kGpt);
  std::vector<std::string> lines;
  options.ended = [&lines](int64_t run, const std::string& line) {
    EXPECT_EQ(run, std::ssize(lines));
    lines.push_back(line);
  };
  const auto curves = TrainAllReordered(options, SingleStrategy());
  ASSERT_TRUE(curves.ok()) << curves.status();
  ASSERT_EQ(curves->size(), 6u);
  const Reorderings gpt = Admitted(options);
  EXPECT_EQ((*curves)[4], Train(options, gpt.Draw(1, 4)));
  EXPECT_THAT(lines[5], HasSubstr("[6/6] cut.shards="));
}

TEST_F(ReorderedRunsTest, ErrorsOfTheWorkloadAreTold) {
  EXPECT_THAT(
      TrainAllReordered(Options(kGpt, {"model.widht=3"}), SingleStrategy()).status().message(),
      HasSubstr("widht"));
}

}  // namespace
}  // namespace lockstep
