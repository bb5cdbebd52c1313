#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/subprocess.h"
#include "foresight/measurements.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/plan/calibration/timed_calls.h"
#include "tools/plan/calibration/timed_training.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

TrainingToTime SmallGpt(int ranks) {
  return {
      .assignments = {"model.kind=transformer", "model.layers=1", "model.heads=2", "model.width=16",
                      "data.kind=markov", "data.vocabulary=16", "data.order=1", "data.context=16",
                      "batch.size=2", "optimizer.kind=adamw", "schedule.learning_rate=1e-4"},
      .ranks = ranks,
      .threads = 1};
}

// Kernels of forward, backward and optimizer, once for each shape.
TEST(TimedTrainingTest, ARowForEachCall) {
  const auto rows = TimeTraining(SmallGpt(2), 0);
  ASSERT_TRUE(rows.ok()) << rows.status();
  std::set<std::string> kernels, lines;
  for (const MeasuredKernel& row : *rows) {
    EXPECT_EQ(row.ranks, 2);
    EXPECT_EQ(row.threads, 1);
    EXPECT_GT(row.work, 0);
    // The cluster file takes it.
    EXPECT_TRUE(ParseMeasuredKernel(ToText(row)).ok()) << ToText(row);
    kernels.insert(row.kernel);
    std::string shape = row.kernel + Name(row.dtype);
    for (const auto& [name, extent] : row.extents) {
      shape += " " + name + std::to_string(extent.first) + "x" + std::to_string(extent.second);
    }
    EXPECT_TRUE(lines.insert(shape).second) << shape;
  }
  for (const char* kernel : {"Linear", "LinearBackward", "AttentionForward", "UpdateParameters"}) {
    EXPECT_THAT(kernels, Contains(kernel));
  }
  // [32, 16] x [48, 16]: the projection of queries, keys and values of 2 sequences of 16 tokens.
  const auto qkv = [](const MeasuredKernel& row) {
    return row.kernel == "Linear" && row.extents.at("w") == std::pair(48., 16.);
  };
  const auto found = std::find_if(rows->begin(), rows->end(), qkv);
  ASSERT_NE(found, rows->end());
  EXPECT_EQ(found->extents.at("x"), std::pair(32., 16.));
  EXPECT_EQ(found->work, 2. * 32 * 16 * 48);
}

// Ranks that divide each layer call kernels of their share.
TEST(TimedTrainingTest, RanksTogetherCallKernelsOfTheirShare) {
  TrainingToTime training = SmallGpt(2);
  training.together = true;
  const auto rows = TimeTraining(training, 0);
  ASSERT_TRUE(rows.ok()) << rows.status();
  // The weight of queries, keys and values is [48, 16]; a rank has the rows of one of two heads.
  const auto qkv = [](const MeasuredKernel& row) {
    return row.kernel == "Linear" && row.extents.at("w") == std::pair(24., 16.);
  };
  EXPECT_TRUE(std::any_of(rows->begin(), rows->end(), qkv));
}

TEST(TimedTrainingTest, SaysWhyAModelCannotBe) {
  TrainingToTime training = SmallGpt(2);
  training.assignments.push_back("model.heads=3");
  EXPECT_THAT(std::string(TimeTraining(training, 0).status().message()), HasSubstr("heads"));
}

TEST(TimedCallsTest, ThreadsMakeEachCall) {
  const auto measured = TimeCallsOfThreads(2, 0.01, /*most_seconds=*/HUGE_VAL);
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_EQ(measured->calls.size(), CallsToTime());
  std::set<std::pair<Operation, double>> calls;
  for (const MeasuredCall& row : measured->calls) {
    EXPECT_EQ(row.ranks, 2);
    EXPECT_EQ(row.transport, Transport::kThreads);
    EXPECT_TRUE(ParseMeasuredCall(ToText(row)).ok()) << ToText(row);
    EXPECT_TRUE(calls.emplace(row.operation, row.bytes).second);
  }
  EXPECT_THAT(calls, AllOf(Contains(std::pair(Operation::kAllReduce, 65536.)),
                           Contains(std::pair(Operation::kSend, 64.))));
  // Each wait lies behind a longer time of kernels than the one before it.
  double apart = 0;
  EXPECT_GT(measured->waits.size(), 2);
  for (const MeasuredWait& wait : measured->waits) {
    // The cluster file takes it, as it takes nothing that is not above zero.
    EXPECT_TRUE(ParseMeasuredWait(ToText(wait)).ok()) << ToText(wait);
    apart = std::max(apart, wait.apart);
  }
  EXPECT_EQ(apart, measured->waits.back().apart);
}

TEST(TimedCallsTest, WithoutTimeTheSmallestCallsAreLeft) {
  const auto measured = TimeCallsOfThreads(2, 0.01, /*most_seconds=*/0);
  ASSERT_TRUE(measured.ok()) << measured.status();
  std::set<Operation> operations;
  for (const MeasuredCall& row : measured->calls) {
    EXPECT_EQ(row.bytes, 64);
    operations.insert(row.operation);
  }
  EXPECT_THAT(operations,
              UnorderedElementsAre(Operation::kAllReduce, Operation::kReduceScatter,
                                   Operation::kAllGather, Operation::kBroadcast, Operation::kSend));
}

// At once, not behind the measurements.
TEST(CalibrateTest, AFileThatCannotBeWrittenIsOneMessage) {
  const auto result = RunProcess(
      {.arguments = {"tools/plan/calibration/calibrate", "--out", "/proc/nowhere/machine.toml"}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 1);
  EXPECT_THAT(result->err, AllOf(HasSubstr("/proc/nowhere"), HasSubstr("--out")));
  EXPECT_THAT(result->out, testing::IsEmpty());
}

}  // namespace
}  // namespace lockstep
