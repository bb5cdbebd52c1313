#include "core/report/reporter.h"

#include "core/base/file.h"
#include "core/data/markov.h"
#include "core/report/row_checksums.h"
#include "core/report/run_description.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

// A run that goes on from an older checkpoint cuts rows that a newer checkpoint has checksums of.
// Programs that read the run meanwhile must not take that for damage.
TEST(ReporterTest, ARunThatGoesOnCanBeReadBeforeItsNextCheckpoint) {
  RunDescription run;
  run.dataset = Markov::Create({.context = 32}).value();
  run.out = testing::TempDir() + "/reporter";
  RemoveTree(run.out);
  ASSERT_TRUE(MakeDirectories(run.out).ok());
  const auto check = [&run] {
    for (const char* name : {"/losses.csv", "/steps.csv", "/metrics.jsonl"}) {
      EXPECT_EQ(RowChecksums::CheckBeside(run.out + name), absl::OkStatus());
    }
  };
  {
    const auto reporter = Reporter::Open(run, /*first_step=*/0, /*from=*/"");
    ASSERT_TRUE(reporter.ok()) << reporter.status();
    for (const int64_t step : {0, 1, 2, 3}) {
      ASSERT_EQ((*reporter)->Step(step, {.loss = 2.5}, {}, {}), absl::OkStatus());
      ASSERT_EQ((*reporter)->Sync(step + 1), absl::OkStatus());
    }
  }
  check();
  const auto reporter = Reporter::Open(run, /*first_step=*/2, /*from=*/"");
  ASSERT_TRUE(reporter.ok()) << reporter.status();
  check();
  for (const int64_t step : {2, 3}) {
    ASSERT_EQ((*reporter)->Step(step, {.loss = 1.5}, {}, {}), absl::OkStatus());
    check();
  }
  ASSERT_EQ((*reporter)->Sync(4), absl::OkStatus());
  check();
}

}  // namespace
}  // namespace lockstep
