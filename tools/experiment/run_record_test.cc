#include "tools/experiment/run_record.h"

#include <cmath>
#include <filesystem>
#include <string>

#include "core/base/file.h"
#include "core/report/metrics.h"
#include "core/report/row_checksums.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/experiment/paths.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

// A summary as core/report writes it.
constexpr char kSummary[] = R"({
  "workload": "gpt_markov", "strategy": "ddp", "mesh": "pp=1,dp=2,tp=1", "ranks": 2,
  "shards": 2, "micro_batches": 3, "tokens": 4, "features": 5, "steps": 2, "loss": 1.5,
  "validation_loss": 1.625, "validation_accuracy": 0.25, "parameter_hash": "00ff",
  "step_seconds": 0.5,
  "time_of_step": {"slowest rank": {"predicted": 0.25, "measured": 0.5}}, "tokens_per_second": 2048.0, "memory_peak": 4096,
  "memory": {"parameters": {"predicted": 1000, "measured": 1024},
             "activations": {"measured": 3072}},
  "traffic_bytes_per_step": {"all_reduce gradients": {"predicted": 1000.0, "measured": 1001.0}},
  "per_rank": [{"time": {"forward": 0.1, "communication_exposed": 0.02}},
               {"time": {"forward": 0.3, "communication_exposed": 0.04}, "memory_peak": 96,
                "memory_at_peak": {"parameters": 64, "gradients": 32}}],
  "validation_at_start": {"loss": 3.5, "accuracy": 0.125},
  "parameters": 1000, "trained_parameters": 30, "checkpoint_bytes": 512,
  "stragglers": [{"rank": 1, "part": "optimizer", "windows": 3, "largest_factor": 2.25,
                  "largest_seconds": 0.125, "at_step": 41}],
  "loss_floor": 1.4})";

class RunRecordTest : public testing::Test {
 protected:
  RunRecordTest() : scratch_(TemporaryDirectory::Create().value()), run_(scratch_.path() + "/run") {
    std::filesystem::create_directory(run_);
  }

  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomically(run_ + "/" + name, text).ok());
  }

  // All files of a run of two steps.
  void WriteRun() {
    Write("config.toml", "name = 'gpt_markov'\n[train]\nsteps = 2\n");
    Write("losses.csv", "step,loss\n0,2.5\n1,1.5\n");
    Write("summary.json", kSummary);
  }

  TemporaryDirectory scratch_;
  std::string run_;
};

TEST_F(RunRecordTest, ReadsAWholeRun) {
  WriteRun();
  const RunRecord record = ReadRunRecord(run_);
  ASSERT_TRUE(record.complete()) << record.problem;
  EXPECT_EQ(record.workload, "gpt_markov");
  EXPECT_EQ(record.strategy, "ddp");
  EXPECT_EQ(record.mesh, "pp=1,dp=2,tp=1");
  EXPECT_EQ(record.ranks, 2);
  EXPECT_EQ(record.shards, 2);
  EXPECT_EQ(record.micro_batches, 3);
  EXPECT_EQ(record.tokens, 4);
  EXPECT_EQ(record.features, 5);
  EXPECT_EQ(record.steps, 2);
  EXPECT_EQ(record.losses, (std::vector<LossPoint>{{0, 2.5}, {1, 1.5}}));
  EXPECT_EQ(record.parameter_hash, "00ff");
  EXPECT_EQ(record.loss, 1.5);
  EXPECT_EQ(record.validation_loss, 1.625);
  EXPECT_EQ(record.validation_accuracy, 0.25);
  EXPECT_EQ(record.loss_floor, 1.4);
  ASSERT_TRUE(record.validation_at_start.has_value());
  EXPECT_EQ(record.validation_at_start->loss, 3.5);
  EXPECT_EQ(record.validation_at_start->accuracy, 0.125);
  EXPECT_EQ(record.parameters, 1000);
  EXPECT_EQ(record.trained_parameters, 30);
  EXPECT_EQ(record.checkpoint_bytes, 512);
  EXPECT_EQ(record.step_seconds, 0.5);
  EXPECT_EQ(record.predicted_step_seconds, 0.25);
  EXPECT_EQ(record.unit, "tokens");
  EXPECT_EQ(record.units_per_second, 2048);
  EXPECT_EQ(record.memory_peak, 4096);
  EXPECT_EQ(record.memory.at("parameters").predicted, 1000);
  EXPECT_EQ(record.memory.at("parameters").measured, 1024);
  EXPECT_FALSE(record.memory.at("activations").predicted.has_value());
  EXPECT_EQ(record.traffic.at("all_reduce gradients").measured, 1001);
  EXPECT_DOUBLE_EQ(record.time.at("forward"), 0.2);
  EXPECT_DOUBLE_EQ(record.time.at("communication_exposed"), 0.03);
}

TEST_F(RunRecordTest, ReadsWhatEachRankHolds) {
  WriteRun();
  const RunRecord record = ReadRunRecord(run_);
  ASSERT_EQ(record.per_rank.size(), 2u);
  EXPECT_EQ(record.per_rank[1].memory_peak, 96);
  EXPECT_EQ(record.per_rank[1].memory_at_peak.at("gradients"), 32);
}

TEST_F(RunRecordTest, ReadsWhichRanksWereSlow) {
  WriteRun();
  const RunRecord record = ReadRunRecord(run_);
  ASSERT_EQ(record.slow_ranks.size(), 1u);
  const RunRecord::SlowRank& slow = record.slow_ranks[0];
  EXPECT_EQ(slow.rank, 1);
  EXPECT_EQ(slow.windows, 3);
  EXPECT_EQ(slow.part, "optimizer");
  EXPECT_EQ(slow.factor, 2.25);
  EXPECT_EQ(slow.seconds, 0.125);
  EXPECT_EQ(slow.step, 41);
}

TEST_F(RunRecordTest, ReadsTheLastStepOfATraceWhereThereIsOne) {
  WriteRun();
  EXPECT_FALSE(ReadRunRecord(run_).step_trace.has_value());
  Write("trace.json", R"({"traceEvents": [
      {"ph": "X", "pid": 0, "tid": 0, "name": "step 1", "ts": 0, "dur": 2, "args": {}}]})");
  const RunRecord record = ReadRunRecord(run_);
  ASSERT_TRUE(record.step_trace.has_value());
  EXPECT_EQ(record.step_trace->step, 1);
  Write("trace.json", "{");
  EXPECT_TRUE(ReadRunRecord(run_).complete());
  EXPECT_FALSE(ReadRunRecord(run_).step_trace.has_value());
}

TEST_F(RunRecordTest, ReadsLegsAndChangesOfMesh) {
  WriteRun();
  EXPECT_TRUE(ReadRunRecord(run_).legs.empty());
  const auto write_legs = [&](const std::string& legs) {
    Write("config.toml", "name = 'gpt_markov'\n[train]\nsteps = 2\nlegs = [" + legs + "]\n");
  };
  write_legs("'1: single', '4: ddp dp=2', '1: single'");
  Write("metrics.jsonl", R"({"step": 0, "loss": 2.5}
{"step": 0, "change_from": "single pp=1,dp=1,tp=1", "change_to": "ddp pp=1,dp=2,tp=1", "change_seconds": 0.25, "change_bytes": 4096}
)");
  const RunRecord record = ReadRunRecord(run_);
  ASSERT_TRUE(record.complete()) << record.problem;
  ASSERT_EQ(record.legs.size(), 2u) << "the third begins behind the last step";
  EXPECT_EQ(record.legs[1].formation.strategy, "ddp");
  ASSERT_EQ(record.changes_of_mesh.size(), 1u);
  const RunRecord::MeshChange& change = record.changes_of_mesh[0];
  EXPECT_EQ(change.steps, 1);
  EXPECT_EQ(change.from, "single pp=1,dp=1,tp=1");
  EXPECT_EQ(change.to, "ddp pp=1,dp=2,tp=1");
  EXPECT_EQ(change.seconds, 0.25);
  EXPECT_EQ(change.sent_bytes, 4096);
  write_legs("'2: ddp dp=2', '2: single'");
  EXPECT_TRUE(ReadRunRecord(run_).legs.empty()) << "all steps are in the first";
}

TEST_F(RunRecordTest, NotFiniteNumbersAreNan) {
  WriteRun();
  Write("summary.json", R"({"steps": 2, "validation_loss": null})");
  const RunRecord record = ReadRunRecord(run_);
  ASSERT_TRUE(record.complete()) << record.problem;
  EXPECT_TRUE(std::isnan(record.validation_loss));
}

TEST_F(RunRecordTest, ARunWithoutSummaryIsUnfinished) {
  WriteRun();
  Write("config.toml", "name = 'gpt_markov'\n[train]\nsteps = 9\n");
  std::filesystem::remove(run_ + "/summary.json");
  const RunRecord record = ReadRunRecord(run_);
  EXPECT_EQ(record.state, RunRecord::State::kUnfinished);
  EXPECT_EQ(record.problem, "stopped after 2 of 9 steps");
  EXPECT_EQ(record.workload, "gpt_markov");
  EXPECT_EQ(record.strategy, "run");  // all that is known is the directory's name
  EXPECT_EQ(record.losses.size(), 2u);
}

TEST_F(RunRecordTest, TheErrorOfARunThatFailedIsItsReason) {
  Write("error.txt", "train.stps: no such key;\ndid you mean train.steps?\n");
  RunRecord record = ReadRunRecord(run_);
  EXPECT_EQ(record.error, "train.stps: no such key; did you mean train.steps?");
  EXPECT_THAT(record.problem, HasSubstr("never began to train: train.stps: no such key; did"));
  WriteRun();
  record = ReadRunRecord(run_);
  EXPECT_TRUE(record.complete()) << "a later try that failed takes nothing away";
  std::filesystem::remove(run_ + "/summary.json");
  EXPECT_THAT(ReadRunRecord(run_).problem, HasSubstr("stopped after 2 of 2 steps: train.stps"));
}

// --resume with more steps, and stopped again.
TEST_F(RunRecordTest, TheSummaryOfAnEarlierRunDoesNotCount) {
  WriteRun();
  Write("config.toml", "name = 'gpt_markov'\n[train]\nsteps = 9\n");
  EXPECT_EQ(ReadRunRecord(run_).problem, "stopped after 2 of 9 steps");
}

TEST_F(RunRecordTest, ARunThatEndedEarlyIsComplete) {
  WriteRun();
  Write("config.toml", "name = 'gpt_markov'\n[train]\nsteps = 9\n");
  Write("summary.json", R"({"steps": 2, "ended_early_of_steps": 9})");
  const RunRecord record = ReadRunRecord(run_);
  EXPECT_TRUE(record.complete()) << record.problem;
  EXPECT_EQ(record.steps, 2);
  Write("losses.csv", "step,loss\n0,2.5\n");
  EXPECT_FALSE(ReadRunRecord(run_).complete());
}

TEST_F(RunRecordTest, TimesMayBeOfTheWarmUp) {
  WriteRun();
  EXPECT_FALSE(ReadRunRecord(run_).is_warm_up);
  Write("summary.json", R"({"steps": 2, "step_times_are_of_warm_up": true})");
  EXPECT_TRUE(ReadRunRecord(run_).is_warm_up);
}

TEST_F(RunRecordTest, FewerLossesThanTheSummarySaysIsUnfinished) {
  WriteRun();
  Write("losses.csv", "step,loss\n0,2.5\n");
  EXPECT_EQ(ReadRunRecord(run_).problem, "stopped after 1 of 2 steps");
}

TEST_F(RunRecordTest, ADirectoryThatIsNotThereIsMissing) {
  const RunRecord record = ReadRunRecord(scratch_.path() + "/nowhere/");
  EXPECT_EQ(record.state, RunRecord::State::kMissing);
  EXPECT_EQ(record.problem, "no such directory");
  EXPECT_EQ(record.strategy, "nowhere");
}

TEST_F(RunRecordTest, ARunThatNeverBeganIsMissing) {
  const RunRecord record = ReadRunRecord(run_);
  EXPECT_EQ(record.state, RunRecord::State::kMissing);
  EXPECT_THAT(record.problem, HasSubstr("no losses.csv"));
}

TEST_F(RunRecordTest, DamagedFilesAreNamed) {
  WriteRun();
  Write("summary.json", "{\"steps\": 2");
  RunRecord record = ReadRunRecord(run_);
  EXPECT_EQ(record.state, RunRecord::State::kMissing);
  EXPECT_THAT(record.problem, HasSubstr("summary.json"));
  Write("losses.csv", "step,loss\n0,2.5\nrubbish\n");
  record = ReadRunRecord(run_);
  EXPECT_EQ(record.state, RunRecord::State::kMissing);
  EXPECT_THAT(record.problem, HasSubstr("losses.csv:3"));
}

// Each of these files can be read, and would make the run part from others.
TEST_F(RunRecordTest, RowsThatHaveChangedAreNamed) {
  WriteRun();
  Write("metrics.jsonl", "{\"step\":0,\"loss_scale\":2}\n{\"step\":1,\"loss_scale\":2}\n");
  RowChecksums checksums(run_,
                         {{.name = "losses.csv", .format = &kLossesCsv},
                          {.name = "metrics.jsonl", .format = &kMetricsJsonl}},
                         /*first_step=*/0);
  ASSERT_TRUE(checksums.Add(2).ok());
  EXPECT_TRUE(ReadRunRecord(run_).complete()) << ReadRunRecord(run_).problem;
  Write("metrics.jsonl", "{\"step\":0,\"loss_scale\":2}\n{\"step\":1,\"loss_scale\":4}\n");
  EXPECT_THAT(ReadRunRecord(run_).problem,
              HasSubstr("/metrics.jsonl: the rows of the steps 0 to 1 are not those"));
  Write("losses.csv", "step,loss\n0,2.5\n1,1.6\n");
  const RunRecord record = ReadRunRecord(run_);
  EXPECT_EQ(record.state, RunRecord::State::kMissing);
  EXPECT_THAT(record.problem, HasSubstr("/losses.csv: the rows of the steps 0 to 1 are not those"));
  // Whoever wants the rows as they are can have them.
  RemoveTree(run_ + "/" + kRowChecksumsFile);
  EXPECT_TRUE(ReadRunRecord(run_).complete()) << ReadRunRecord(run_).problem;
}

TEST_F(RunRecordTest, FilesThatSayWhatNoRunSaysAreReadAllTheSame) {
  WriteRun();
  Write("summary.json", R"({"steps": 2, "loss_scale": 1, "ranks": 1e300, "parameters": null,
                            "per_rank": [3], "time_of_step": 7})");
  Write("metrics.jsonl", R"({"step": 0, "loss_scale": 2, "skipped": null}
{"step": 1, "loss_scale": null, "skipped": "yes"}
{"step": 1, "loss_scale": 2, "skipped": true}
)");
  const RunRecord record = ReadRunRecord(run_);
  EXPECT_TRUE(record.complete()) << record.problem;
  EXPECT_EQ(record.ranks, 0);
  EXPECT_EQ(record.skipped_steps, std::vector<int64_t>{1});
}

TEST_F(RunRecordTest, TheLastStepTellsTheLoadOfExperts) {
  WriteRun();
  Write("metrics.jsonl", R"({"step": 0, "expert_load": {"a.router": [1, 0], "b.router": [0, 1]}}
{"step": 1, "expert_load": {"a.router": [0.25, 0.75], "b.router": [0.5, null]}}
{"step": 1, "validation_loss": 1.5}
)");
  const RunRecord record = ReadRunRecord(run_);
  EXPECT_TRUE(record.complete()) << record.problem;
  ASSERT_EQ(record.expert_load.size(), 2u);
  EXPECT_EQ(record.expert_load[0].router, "a.router");
  EXPECT_EQ(record.expert_load[0].fractions, (std::vector<double>{0.25, 0.75}));
  EXPECT_EQ(record.expert_load[1].fractions, (std::vector<double>{0.5, 0}));
}

TEST_F(RunRecordTest, AStoppedRunWithoutAConfigurationIsSaidToBeOne) {
  Write("losses.csv", "step,loss\n0,2.5\n1,1.5\n");
  EXPECT_EQ(ReadRunRecord(run_).problem, "stopped after 2 steps; of how many, no config.toml says");
}

}  // namespace
}  // namespace lockstep
