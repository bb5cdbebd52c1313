// Runs of threads that lose ranks and go on with the others, on the curve of `single`.

#include "core/run/elastic.h"

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/report/restart_log.h"
#include "core/run/trainer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/presets.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using Where = RunPlace::Where;

// Throws on the rank that comes to a place, once for each place.
class Losses {
 public:
  explicit Losses(std::vector<RunPlace> places) : places_(std::move(places)) {}

  void Visit(const RunPlace& at) {
    const std::lock_guard lock(mutex_);
    for (auto place = places_.begin(); place != places_.end(); ++place) {
      if (place->rank != at.rank || place->step != at.step || place->where != at.where) continue;
      places_.erase(place);
      throw StatusException(absl::UnavailableError(absl::StrCat("rank ", at.rank, " is lost")));
    }
  }
  bool all_have_come() const { return places_.empty(); }

 private:
  std::mutex mutex_;
  std::vector<RunPlace> places_;
};

class ElasticTest : public ::testing::Test {
 protected:
  ElasticTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    EXPECT_TRUE(WriteFileAtomically(folder_ + "/workload.toml", SmallGptConfig()).ok());
  }

  CommandLine Line(const Assignments& assignments) const {
    CommandLine line;
    line.configs = {folder_ + "/workload.toml"};
    line.assignments = With({"mesh.dp=1", "cut.shards=4", "checkpoint.every=1"}, assignments);
    line.out = folder_ + "/out";
    line.elastic = true;
    return line;
  }

  absl::StatusOr<EndedRun> Train(const std::string& strategy, const CommandLine& line,
                                 Losses& losses) {
    for (const StrategyDefinition& preset : LegStrategies()) {
      if (preset.name != strategy) continue;
      LS_ASSIGN_OR_RETURN(TrainingRun run,
                          PrepareRun(line, preset, MakeModel, {}, LegStrategies()));
      run.visit = [&losses](const RunPlace& place) { losses.Visit(place); };
      const ModelFactory make_model = MakeModel;
      const std::vector<StrategyDefinition> presets = LegStrategies();
      return TrainElastic(std::move(run), {.command_line = line,
                                           .strategy = preset,
                                           .make_model = make_model,
                                           .strategies = presets});
    }
    return absl::NotFoundError(strategy);
  }

  std::string LossesOf(const std::string& out) { return ReadFile(out + "/losses.csv").value(); }

  // The losses and the hash of a run that nothing disturbs, on one rank.
  void ExpectCurveOfSingle(const EndedRun& ended) {
    const std::vector<RankReport> single = RunStrategy(
        SingleStrategy(), MakeModel, SmallGptConfig(), {"cut.shards=4", "checkpoint.keep=0"});
    EXPECT_EQ(LossesOf(folder_ + "/out"), LossesOf(RunFolder()));
    EXPECT_EQ(ended.reports[0].parameter_hash, single[0].parameter_hash);
  }

  const std::string folder_ = ::testing::TempDir() + "/elastic";
};

TEST_F(ElasticTest, TheOthersGoOnWithTheLargestMeshThatDividesTheCut) {
  Losses losses({{.rank = 2, .step = 1, .where = Where::kMicroBatch},
                 {.rank = 0, .step = 3, .where = Where::kStepBegin}});
  const auto ended = Train("fsdp", Line({"mesh.dp=4", "checkpoint.write=step"}), losses);
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_TRUE(losses.all_have_come());
  EXPECT_EQ(ended->run->settings.mesh.dp, 2);
  const std::vector<Restart> restarts = ReadRestarts(folder_ + "/out").value();
  ASSERT_EQ(restarts.size(), 2u);
  EXPECT_THAT(restarts[0].cause, HasSubstr("rank 2 is lost"));
  EXPECT_EQ(restarts[0].steps, 1);
  EXPECT_THAT(restarts[0].formation, HasSubstr("fsdp"));
  EXPECT_THAT(restarts[0].formation, HasSubstr("dp=2"));
  EXPECT_EQ(restarts[1].steps, 3);
  ExpectCurveOfSingle(*ended);
}

TEST_F(ElasticTest, ARankMayBeLostAnywhere) {
  for (const Where where :
       {Where::kStepBegin, Where::kMicroBatch, Where::kStepEnd, Where::kCheckpoint}) {
    SCOPED_TRACE(static_cast<int>(where));
    std::filesystem::remove_all(folder_ + "/out");
    Losses losses({{.rank = 1, .step = 2, .where = where}});
    const auto ended = Train("zero1", Line({"mesh.dp=2"}), losses);
    ASSERT_TRUE(ended.ok()) << ended.status();
    EXPECT_TRUE(losses.all_have_come());
    EXPECT_EQ(ended->run->settings.mesh.dp, 1);
    ExpectCurveOfSingle(*ended);
  }
}

TEST_F(ElasticTest, GoesOnAsTheFirstPreferredFormationThatFits) {
  Losses losses({{.rank = 3, .step = 2, .where = Where::kStepBegin}});
  CommandLine line = Line({"mesh.dp=4"});
  line.elastic_prefer = "fsdp dp=4; gpipe dp=1 pp=2; ddp dp=1";
  const auto ended = Train("ddp", line, losses);
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(ended->run->strategy_name, "gpipe");
  EXPECT_EQ(ended->run->settings.mesh.pp, 2);
  ExpectCurveOfSingle(*ended);
}

TEST_F(ElasticTest, WithoutACheckpointARunStartsOver) {
  Losses losses({{.rank = 0, .step = 2, .where = Where::kStepEnd}});
  const auto ended = Train("ddp", Line({"mesh.dp=2", "checkpoint.every=0"}), losses);
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(ReadRestarts(folder_ + "/out").value().at(0).steps, 0);
  ExpectCurveOfSingle(*ended);
}

TEST_F(ElasticTest, TheLastRankEndsTheRun) {
  Losses losses({{.rank = 1, .step = 1, .where = Where::kStepBegin},
                 {.rank = 0, .step = 2, .where = Where::kStepBegin}});
  const auto ended = Train("ddp", Line({"mesh.dp=2"}), losses);
  EXPECT_THAT(std::string(ended.status().message()), HasSubstr("rank 0 is lost"));
}

}  // namespace
}  // namespace lockstep
