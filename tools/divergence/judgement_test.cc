// What a difference looks like, from tensors written by hand, and how it is told.

#include "tools/divergence/judgement.h"

#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/tensor_slice.h"
#include "core/probe/probe_file.h"
#include "core/probe/probed_run.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/divergence/divergence.h"
#include "tools/divergence/divergence_report.h"
#include "tools/report/html.h"
#include "tools/report/text.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A run whose ranks hold copies of one tensor of a block's layer, behind a batch that all runs
// share.
struct Probed {
  std::vector<float> elements;
  std::vector<float> of_rank_1 = {};  // if there is such a rank
  std::vector<float> batch = {1, 2};
  bool with_values = true;
};

class JudgementTest : public testing::Test {
 protected:
  JudgementTest() : folder_(testing::TempDir() + "/judgement") {
    std::filesystem::remove_all(folder_);
  }

  ProbedRun Write(const std::string& name, const Probed& probed) {
    const std::string run = absl::StrCat(folder_, "/", name);
    const int64_t ranks = probed.of_rank_1.empty() ? 1 : 2;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const ProbeHeader header = {.program = "lockstep " + name,
                                  .workload = "w",
                                  .model = "m",
                                  .step = 0,
                                  .rank = rank,
                                  .ranks = ranks,
                                  .blocks = {"block"}};
      absl::StatusOr<ProbeWriter> writer =
          ProbeWriter::Open(absl::StrCat(run, "/", kProbeFolder), header, probed.with_values);
      EXPECT_TRUE(writer.ok()) << writer.status();
      const auto add = [&](const std::string& place, const std::vector<float>& elements) {
        EXPECT_TRUE(
            writer
                ->Add({.place = place, .number = 0, .held = WholeSlice({std::ssize(elements)})},
                      reinterpret_cast<const uint8_t*>(elements.data()))
                .ok());
      };
      add("batch.inputs", probed.batch);
      add("block.layer", rank == 0 ? probed.elements : probed.of_rank_1);
      EXPECT_TRUE(writer->Commit().ok());
    }
    absl::StatusOr<ProbedRun> read = ReadProbedRun(run);
    EXPECT_TRUE(read.ok()) << read.status();
    return *std::move(read);
  }

  Judgement JudgeFirst(const Probed& a, const Probed& b) {
    const ProbedRun run_a = Write("a", a), run_b = Write("b", b);
    const Divergence divergence = FindDivergence(run_a, run_b).value();
    EXPECT_FALSE(divergence.differences.empty());
    return Judge(run_a, run_b, divergence.differences.front()).value();
  }

  // The report of the two runs, as HTML too.
  std::string Tell(const Probed& a, const Probed& b, std::string* html = nullptr) {
    const ProbedRun run_a = Write("a", a), run_b = Write("b", b);
    const Divergence divergence = FindDivergence(run_a, run_b).value();
    Judgement judgement;
    if (!divergence.differences.empty()) {
      judgement = Judge(run_a, run_b, divergence.differences.front()).value();
    }
    const Report report = DivergenceReport(run_a, run_b, divergence, judgement);
    if (html != nullptr) *html = HtmlOf(report);
    return TextOf(report);
  }

  const std::string folder_;
};

const std::vector<float> kElements = {1, -2, 0, 4, 0.5f};

TEST_F(JudgementTest, AFewUnitsInTheLastPlaceAreRounding) {
  std::vector<float> near = kElements;
  near[3] = std::nextafter(std::nextafter(near[3], 5.0f), 5.0f);
  const Judgement judgement = JudgeFirst({kElements}, {near});
  EXPECT_EQ(judgement.kind, DifferenceKind::kRounding) << judgement.text;
  ASSERT_TRUE(judgement.first.has_value());
  EXPECT_EQ(judgement.first->index, std::vector<int64_t>{3});
  EXPECT_EQ(judgement.first->ulps, 2);
  EXPECT_EQ(judgement.differing, 1);
}

TEST_F(JudgementTest, KnowsFactorsOrdersMasksAndZeros) {
  EXPECT_EQ(JudgeFirst({kElements}, {{3, -6, 0, 12, 1.5f}}).text, "B is A times 3: a wrong scale");
  EXPECT_EQ(JudgeFirst({kElements}, {{-2, 1, 0, 4, 0.5f}}).kind, DifferenceKind::kOtherOrder);
  EXPECT_EQ(JudgeFirst({kElements}, {{1, 0, 7, 4, 0.5f}}).kind, DifferenceKind::kOtherMask);
  EXPECT_EQ(JudgeFirst({kElements}, {{0, 0, 0, 0, 0}}).kind, DifferenceKind::kZero);
  EXPECT_EQ(JudgeFirst({kElements}, {{1, -2, 0, 4, 0.625f}}).kind, DifferenceKind::kOther);
}

TEST_F(JudgementTest, SeesOtherSamplesAndCopiesThatDiffer) {
  const Judgement batch = JudgeFirst({kElements}, {.elements = kElements, .batch = {1, 3}});
  EXPECT_EQ(batch.kind, DifferenceKind::kOtherBatch);
  const Judgement copies =
      JudgeFirst({kElements}, {.elements = kElements, .of_rank_1 = {1, -2, 0, 4, 0.75f}});
  EXPECT_EQ(copies.kind, DifferenceKind::kCopiesDiffer);
  EXPECT_THAT(copies.text, HasSubstr("in B ranks 0 and 1 have copies"));
}

TEST_F(JudgementTest, HashesAloneTellWhereAndHowToSeeMore) {
  const std::string text = Tell({.elements = kElements, .with_values = false},
                                {.elements = {1, -2, 0, 4, 3}, .with_values = false});
  EXPECT_THAT(text, AllOf(HasSubstr("step 1, micro-batch 0, forward of block.layer"),
                          HasSubstr("the files hold hashes only"),
                          HasSubstr("--set probe.values=true --set probe.first_step=0")));
}

TEST_F(JudgementTest, TheReportNamesThePlaceAndTheElement) {
  std::string html;
  const std::string text = Tell({kElements}, {{1, -2, 0, 4, 3}}, &html);
  for (const char* told : {"step 1, micro-batch 0, forward of block.layer",
                           "step 1, micro-batch 0, forward of batch.inputs",
                           "[4]: 0.5 in A, 3 in B", "1 of 2 places differ"}) {
    EXPECT_THAT(text, HasSubstr(told));
    EXPECT_TRUE(absl::StrContains(html, told)) << told;  // the page is long
  }
  EXPECT_TRUE(html.starts_with("<!DOCTYPE html>"));
  EXPECT_TRUE(absl::StrContains(html, "How the difference grows"));
  EXPECT_THAT(Tell({kElements}, {kElements}),
              AllOf(HasSubstr("agree to the bit"), Not(HasSubstr("differ."))));
}

}  // namespace
}  // namespace lockstep
