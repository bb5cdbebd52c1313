#include "tools/certify/run_bits.h"

#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/base/file.h"
#include "core/report/metrics.h"
#include "core/report/row_checksums.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two steps of a run with a parameter and its momentum.
std::vector<StepBits> TwoSteps() {
  return {
      {.step = 0, .loss = 2.5, .gradient_norm = 1, .tensors = {{"w", 1}, {"optimizer.m.w", 2}}},
      {.step = 1, .loss = 2, .gradient_norm = 0.5, .tensors = {{"w", 3}, {"optimizer.m.w", 4}}}};
}

TEST(FirstDifferenceTest, EqualRunsHaveNone) {
  EXPECT_FALSE(FirstDifference(TwoSteps(), TwoSteps()).has_value());
  std::vector<StepBits> run = TwoSteps(), other = TwoSteps();
  run[1].loss = other[1].loss = std::nan("");
  std::swap(other[0].tensors[0], other[0].tensors[1]);
  EXPECT_FALSE(FirstDifference(run, other).has_value()) << "tensors go by name, NaN is NaN";
}

TEST(FirstDifferenceTest, NamesTheStepAndWhatAStepMakesFirst) {
  std::vector<StepBits> run = TwoSteps();
  run[1] = {
      .step = 1, .loss = 2.25, .gradient_norm = 7, .tensors = {{"w", 3}, {"optimizer.m.w", 9}}};
  auto difference = FirstDifference(run, TwoSteps());
  ASSERT_TRUE(difference.has_value());
  EXPECT_EQ(difference->ToString(),
            "step 1: the loss is 2.25, not 2; after it 1 of 2 tensors differ, the first is "
            "optimizer.m.w");
  run[1].loss = 2;
  EXPECT_THAT(FirstDifference(run, TwoSteps())->ToString(),
              HasSubstr("step 1: the gradient norm is 7, not 0.5; after it 1 of 2"));
  run[1].gradient_norm = 0.5;
  EXPECT_THAT(
      FirstDifference(run, TwoSteps())->ToString(),
      testing::EndsWith("step 1: loss and gradient norm are the same, but the hash of "
                        "optimizer.m.w is 0000000000000009, not 0000000000000004; after it 1 of "
                        "2 tensors differ"));
  run[0].tensors[0].hash = 8;
  difference = FirstDifference(run, TwoSteps());
  EXPECT_EQ(difference->step, 0);
  EXPECT_EQ(difference->what, "w");
  EXPECT_THAT(difference->tensors, ElementsAre("w"));
}

TEST(FirstDifferenceTest, ALossMayDifferWhereNoTensorDoes) {
  std::vector<StepBits> run = TwoSteps();
  run[0].loss = std::nextafter(2.5, 3);
  EXPECT_THAT(FirstDifference(run, TwoSteps())->ToString(),
              HasSubstr("step 0: the loss is 2.5000000000000004, not 2.5; after it all 2 tensors "
                        "are the same"));
}

TEST(FirstDifferenceTest, ATensorThatOneRunLacksDiffers) {
  std::vector<StepBits> run = TwoSteps();
  run[0].tensors.pop_back();
  EXPECT_THAT(FirstDifference(run, TwoSteps())->ToString(),
              HasSubstr("optimizer.m.w is missing, not 0000000000000002"));
  EXPECT_THAT(FirstDifference(TwoSteps(), run)->ToString(),
              HasSubstr("optimizer.m.w is 0000000000000002, not missing"));
}

TEST(FirstDifferenceTest, StepsThatOneRunLacksDiffer) {
  std::vector<StepBits> run = TwoSteps();
  run.pop_back();
  EXPECT_EQ(FirstDifference(run, TwoSteps())->ToString(), "step 1: only one of the runs has it");
  EXPECT_EQ(FirstDifference(TwoSteps(), run)->ToString(), "step 1: only one of the runs has it");
}

TEST(DigestTest, EachNumberTellsItsPart) {
  const BitsDigest digest = DigestOf(TwoSteps());
  EXPECT_EQ(digest.weights, "0000000000000003");
  EXPECT_EQ(digest.optimizer, "0000000000000004");
  std::vector<StepBits> run = TwoSteps();
  run[0].gradient_norm = std::nextafter(1.0, 2.0);
  EXPECT_NE(DigestOf(run).losses, digest.losses);
  run = TwoSteps();
  run[0].loss = std::nextafter(2.5, 2.0);
  EXPECT_NE(DigestOf(run).losses, digest.losses);
  EXPECT_EQ(DigestOf(run).weights, digest.weights);
}

class ReadRunBitsTest : public testing::Test {
 protected:
  ReadRunBitsTest() : folder_(testing::TempDir() + "/read_run_bits") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    Write("losses.csv", "step,loss\n0,2.5\n1,2\n");
    Write("metrics.jsonl",
          "{\"step\":0,\"loss\":2.5,\"gradient_norm\":1.0}\n"
          "{\"step\":1,\"loss\":2.0,\"gradient_norm\":null}\n"
          "{\"step\":1,\"validation_loss\":2.0}\n");
    Write("hashes.csv",
          "step,hash,tensor\n0,01,w\n0,02,optimizer.m.w\n1,03,w\n1,04,optimizer.m.w\n");
  }

  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomically(folder_ + "/" + name, text).ok());
  }
  std::string Error() { return std::string(ReadRunBits(folder_).status().message()); }

  const std::string folder_;
};

TEST_F(ReadRunBitsTest, ReadsARunDirectory) {
  const auto run = ReadRunBits(folder_);
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_EQ(run->size(), 2u);
  EXPECT_TRUE(std::isnan((*run)[1].gradient_norm));
  std::vector<StepBits> expected = TwoSteps();
  expected[1].gradient_norm = std::nan("");
  EXPECT_FALSE(FirstDifference(*run, expected).has_value());
}

// Each of these files can be read, and would make the run part from others.
TEST_F(ReadRunBitsTest, RowsThatHaveChangedAreNamed) {
  RowChecksums checksums(folder_,
                         {{.name = "losses.csv", .format = &kLossesCsv},
                          {.name = "metrics.jsonl", .format = &kMetricsJsonl},
                          {.name = "hashes.csv", .format = &kHashesCsv}},
                         /*first_step=*/0);
  ASSERT_TRUE(checksums.Add(2).ok());
  EXPECT_EQ(Error(), "");
  for (const std::string name : {"losses.csv", "metrics.jsonl", "hashes.csv"}) {
    const std::string good = ReadFile(folder_ + "/" + name).value();
    std::string changed = good;
    changed[changed.find("1,")] = '9';  // a digit of a step, a norm or a hash
    Write(name, changed);
    EXPECT_THAT(Error(), HasSubstr("/" + name + ": the rows of the steps 0 to 1 are not those"));
    Write(name, good);
  }
}

TEST_F(ReadRunBitsTest, MissingAndDamagedFilesAreNamed) {
  Write("hashes.csv", "step,hash,tensor\n1,03,w\n");
  EXPECT_THAT(Error(), HasSubstr("has the loss of step 0, but not its gradient norm and hashes"));
  Write("metrics.jsonl", "rubbish\n");
  EXPECT_THAT(Error(), HasSubstr("metrics.jsonl: \"rubbish\" is no row of metrics"));
  std::filesystem::remove(folder_ + "/losses.csv");
  EXPECT_THAT(Error(), HasSubstr("losses.csv"));
}

}  // namespace
}  // namespace lockstep
