#include "tools/compare/report.h"

#include <string>

#include "core/config/legs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/report/html.h"
#include "tools/report/text.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

RunRecord MakeRun(const std::string& strategy) {
  RunRecord run;
  run.state = RunRecord::State::kComplete;
  run.workload = "gpt_markov";
  run.strategy = strategy;
  run.losses = {{0, 2.0}, {1, 1.25}};
  run.steps = 2;
  run.mesh = "pp=1,dp=2,tp=1";
  run.ranks = run.shards = 2;
  run.micro_batches = 3;
  run.parameter_hash = "aa";
  run.loss = 1.25;
  run.validation_loss = 1.5;
  run.loss_floor = 1.4375;
  run.step_seconds = 0.5;
  run.unit = "tokens";
  run.units_per_second = 12345;
  run.time = {{"forward", 0.1}, {"backward", 0.25}, {"communication_exposed", 0.05}};
  run.memory_peak = 3 << 20;
  run.memory = {{"parameters", {.predicted = 1 << 20, .measured = 2 << 20}},
                {"activations", {.predicted = {}, .measured = 512}}};
  run.traffic = {{"all_reduce gradients", {.predicted = 1234567, .measured = 1234568}},
                 {"all_reduce loss", {.predicted = 8, .measured = 8}}};
  return run;
}

std::string Report(const std::vector<RunRecord>& runs) {
  return TextOf(ComparisonReport(CompareRuns(runs)));
}

TEST(ComparisonReportTest, ShowsLostRanksAndThatTheCurveGoesOn) {
  RunRecord run = MakeRun("ddp");
  run.restarts = {{.time = "2026-11-24T12:00:00Z",
                   .cause = "rank 2: killed by signal 9 (Killed)",
                   .steps = 1,
                   .state = "memory",
                   .formation = "ddp dp=2",
                   .seconds = 1.5}};
  const std::string report = Report({MakeRun("single"), run});
  EXPECT_THAT(report, ContainsRegex("ddp +2026-11-24T12:00:00Z +rank 2: killed by signal 9 "
                                    "\\(Killed\\) +1, memory +ddp dp=2 +1.5 s"));
  EXPECT_THAT(report, HasSubstr("ddp has each loss of its reference, to the bit"));
  run.losses[1].loss = 1.375;
  EXPECT_THAT(Report({MakeRun("single"), run}),
              HasSubstr("ddp has not all losses of its reference"));
  EXPECT_THAT(Report({MakeRun("single"), MakeRun("ddp")}), Not(HasSubstr("lost")));
}

TEST(ComparisonReportTest, ShowsLegsAndTheirChangesOfMesh) {
  RunRecord run = MakeRun("fsdp");
  run.legs = {Leg::Parse("1: single").value(), Leg::Parse("1: fsdp dp=2").value()};
  run.config = Config::FromString("train.legs = ['1: single', '1: fsdp dp=2']", "test").value();
  run.changes_of_mesh = {{.steps = 1,
                          .from = "single pp=1,dp=1,tp=1",
                          .to = "fsdp pp=1,dp=2,tp=1",
                          .seconds = 0.25,
                          .sent_bytes = 3 << 20}};
  const std::string report = Report({MakeRun("single"), MakeRun("fsdp"), run});
  EXPECT_THAT(report, Not(HasSubstr("need not agree")));
  EXPECT_THAT(report, ContainsRegex("2 legs, single -> fsdp +2 +dp=2, last leg"));
  EXPECT_THAT(report, ContainsRegex("\n *fsdp +2 +dp=2 +2 x 3"));
  EXPECT_THAT(report, HasSubstr("traffic are those of its last leg, fsdp dp=2"));
  EXPECT_THAT(report,
              ContainsRegex("2 legs, single -> fsdp +1 +single +fsdp dp=2 +250 ms +3.0 MiB"));
  EXPECT_THAT(Report({MakeRun("single"), MakeRun("fsdp")}),
              AllOf(Not(HasSubstr("Changes of mesh")), Not(HasSubstr("last leg"))));
}

TEST(ComparisonReportTest, NamesSlowRanksWithThePartOfTheStep) {
  RunRecord run = MakeRun("ddp");
  run.slow_ranks = {
      {.rank = 1, .windows = 3, .part = "optimizer", .factor = 2.25, .seconds = 0.2, .step = 41}};
  EXPECT_THAT(Report({MakeRun("single"), run}),
              AllOf(HasSubstr("Ranks that were slower than others with the same work"),
                    ContainsRegex("ddp +1 +3 +42 +2\\.2 x +200 ms +optimizer")));
  EXPECT_THAT(Report({MakeRun("single"), MakeRun("ddp")}), Not(HasSubstr("slower")));
}

TEST(ComparisonReportTest, ShowsARunInEachTable) {
  const std::string report = Report({MakeRun("single"), MakeRun("ddp")});
  EXPECT_THAT(report, AllOf(HasSubstr("\ngpt_markov\n"),
                            ContainsRegex("single +2 +dp=2 +2 x 3 +2 +1.250000 +reference +1.5000, "
                                          "floor 1.4375"),
                            ContainsRegex("ddp +2 +dp=2 +2 x 3 +2 +1.250000 +0 \\(exact\\)")));
  EXPECT_THAT(report, ContainsRegex("step +forward +backward +comm. exposed\n"));
  EXPECT_THAT(report, ContainsRegex("ddp +12.3K +500 ms +100 ms +250 ms +50.0 ms"));
  EXPECT_THAT(report, Not(HasSubstr("bubble")));
  EXPECT_THAT(report, ContainsRegex("ddp +3.0 MiB +2.0 MiB / 1.0 MiB +512 B\n"));
  EXPECT_THAT(report, HasSubstr("measured only: activations; "));
  EXPECT_THAT(report, ContainsRegex("ddp +1,234,576 / 1,234,575\n"));
}

// Only where a run was predicted: on a machine that was measured.
TEST(ComparisonReportTest, ShowsPredictedTimeBesideTheStep) {
  RunRecord predicted = MakeRun("ddp");
  predicted.predicted_step_seconds = 0.25;
  const std::string report = Report({MakeRun("single"), predicted});
  EXPECT_THAT(report, ContainsRegex("step +predicted +forward"));
  EXPECT_THAT(report, ContainsRegex("single +12.3K +500 ms +- +100 ms"));
  EXPECT_THAT(report, ContainsRegex("ddp +12.3K +500 ms +250 ms +100 ms"));
}

TEST(ComparisonReportTest, ShowsHowFarACurveIsOff) {
  RunRecord ddp = MakeRun("ddp");
  ddp.losses[1].loss = 1.25 * (1 + 1e-6);
  EXPECT_THAT(Report({MakeRun("single"), ddp}), HasSubstr("1.0e-06 at step 1"));
  ddp = MakeRun("ddp");
  ddp.parameter_hash = "bb";
  EXPECT_THAT(Report({MakeRun("single"), ddp}), HasSubstr("0, but other parameters"));
  ddp = MakeRun("ddp");
  ddp.losses.pop_back();
  EXPECT_THAT(Report({MakeRun("single"), ddp}), HasSubstr("0 (first 1 steps)"));
  EXPECT_THAT(Report({MakeRun("ddp")}), HasSubstr("no single of 2 x 3"));
}

TEST(ComparisonReportTest, ShowsAccuracyForImages) {
  RunRecord run = MakeRun("single");
  run.unit = "samples";
  run.loss_floor.reset();
  run.validation_accuracy = 0.9375;
  EXPECT_THAT(Report({run}), AllOf(HasSubstr("1.5000, accuracy 93.75 %"), HasSubstr("samples/s")));
}

TEST(ComparisonReportTest, ShowsWhatAdaptersCostAndGain) {
  RunRecord full = MakeRun("single"), lora = MakeRun("lora"), ddp = MakeRun("ddp");
  full.directory = "runs/gpt/full";
  for (RunRecord* run : {&full, &lora, &ddp}) run->parameters = run->trained_parameters = 1234567;
  EXPECT_THAT(Report({full, lora, ddp}), Not(HasSubstr("what is trained")));
  for (RunRecord* run : {&lora, &ddp}) {
    run->config = Config::FromString("lora.rank = 4", "test").value();
    run->trained_parameters = 12345;
    run->checkpoint_bytes = 3 << 20;
  }
  lora.validation_at_start = {.loss = 2.75, .accuracy = 0.5};
  const std::string report = Report({full, lora, ddp});
  EXPECT_THAT(report, ContainsRegex("single \\(full\\) +1,234,567 +1,234,567 +100.00 % +-\n"));
  EXPECT_THAT(report, ContainsRegex("lora +1,234,567 +12,345 +1.00 % +3.0 MiB\n"));
  EXPECT_THAT(report, AllOf(HasSubstr("loss against lora or single"), HasSubstr("at the start"),
                            ContainsRegex("lora .* reference +1.5000, floor 1.4375 +2.7500\n"),
                            ContainsRegex("ddp .* 0 \\(exact\\)")));
  // Adapters are not measured by a run that trains all of the model.
  EXPECT_THAT(Report({full, ddp}), HasSubstr("no lora of 2 x 3"));
}

// Threads move no curve: they are named where a curve has moved, and only there.
TEST(ComparisonReportTest, NamesHowRunsDifferWhoseCurvesPart) {
  RunRecord single = MakeRun("single"), ddp = MakeRun("ddp");
  single.config = Config::FromString("run.threads = 1\ntrain.seed = 1", "test").value();
  ddp.config = Config::FromString("run.threads = 3\ntrain.seed = 1", "test").value();
  EXPECT_THAT(Report({single, ddp}), Not(HasSubstr("run.threads")));
  ddp.losses[1].loss = 1.26;
  EXPECT_THAT(Report({single, ddp}), HasSubstr("ddp parts from its reference, and was run with "
                                               "other run.threads (3, not 1)"));
  ddp = MakeRun("ddp");
  ddp.config = Config::FromString("run.threads = 1\ntrain.seed = 2", "test").value();
  EXPECT_THAT(Report({single, ddp}),
              AllOf(HasSubstr("differs from its reference in train.seed (2, not 1)"),
                    Not(HasSubstr("parts from its reference"))));
}

TEST(ComparisonReportTest, SaysWhatTimesAreOfTheWarmUp) {
  RunRecord run = MakeRun("single");
  EXPECT_THAT(Report({run}), Not(HasSubstr("warm up")));
  run.is_warm_up = true;
  EXPECT_THAT(Report({run}), HasSubstr("single: its times are of the first steps, which warm up"));
}

TEST(ComparisonReportTest, ShowsRunsThatFailed) {
  RunRecord ddp = MakeRun("ddp");
  ddp.state = RunRecord::State::kUnfinished;
  ddp.problem = "stopped after 1 of 2 steps";
  ddp.directory = "/runs/x";
  EXPECT_THAT(Report({MakeRun("single"), ddp}),
              HasSubstr("ddp: FAILED, stopped after 1 of 2 steps (/runs/x)"));
}

TEST(ComparisonReportTest, NothingButFailuresMakesNoTable) {
  RunRecord run;
  run.strategy = "ddp";
  run.problem = "no such directory";
  EXPECT_THAT(Report({run}), AllOf(HasSubstr("unknown workload"), HasSubstr("no such directory"),
                                   Not(HasSubstr("final loss"))));
}

TEST(ComparisonReportTest, OtherWorkloadsStandApart) {
  RunRecord other = MakeRun("single");
  other.workload = "resnet_shapes";
  other.config = Config::FromString("model.kind = 'resnet'", "test").value();
  EXPECT_THAT(Report({MakeRun("single"), other}),
              AllOf(HasSubstr("\ngpt_markov\n"), HasSubstr("\nresnet_shapes\n"),
                    HasSubstr("resnet_shapes is not compared with gpt_markov, from which it "
                              "differs in model.kind (\"resnet\", not none)")));
}

TEST(ComparisonReportTest, RunsThatNeverBeganAreOfNoOtherWorkload) {
  RunRecord run;
  run.problem = "not run";
  EXPECT_THAT(Report({MakeRun("single"), run}),
              AllOf(HasSubstr("not run"), Not(HasSubstr("is not compared with"))));
}

TEST(ComparisonReportTest, SaysWhatDiffers) {
  RunRecord ddp = MakeRun("ddp");
  ddp.config = Config::FromString("model.width = 3", "test").value();
  EXPECT_THAT(Report({MakeRun("single"), ddp}),
              HasSubstr("ddp differs from its reference in model.width (3, not none)"));
}

// Both would be "gpt_markov".
TEST(ComparisonReportTest, WorkloadsWhoseNamesReadAlikeHaveChartsOfTheirOwn) {
  RunRecord other = MakeRun("single");
  other.workload = "gpt markov";
  const std::string page = HtmlOf(ComparisonReport(CompareRuns({MakeRun("single"), other})));
  EXPECT_THAT(page,
              AllOf(HasSubstr("id=\"gpt_markov-loss\""), HasSubstr("id=\"gpt_markov-1-loss\"")));
}

}  // namespace
}  // namespace lockstep
