// Runs of threads that lose ranks and go on with the others, on the curve of `single`.

#include "core/run/elastic.h"

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/checkpoint/in_memory.h"
#include "core/report/restart_log.h"
#include "core/run/stop/exit_codes.h"
#include "core/run/stop/stop_request.h"
#include "core/run/trainer.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/presets.h"
#include "strategies/single/single.h"
#include "strategies/testing/flipping.h"
#include "strategies/testing/run_strategy.h"
#include "strategies/testing/wrapped_strategy.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Where = RunPlace::Where;

// A strategy whose state a test can reach.
class Reachable final : public WrappedStrategy {
 public:
  Reachable(std::unique_ptr<Strategy> strategy, Rank& rank, std::shared_ptr<Strategy*[]> reached)
      : WrappedStrategy(std::move(strategy)) {
    reached[static_cast<size_t>(rank.rank)] = this;
  }
};

// Flips a bit in the middle of a shard of a checkpoint, or of its only file: of a tensor, which
// only the ranks that hold it read.
void Damage(const FoundCheckpoint& checkpoint, size_t shard) {
  const std::string path = IsDirectory(checkpoint.path)
                               ? ListShards(checkpoint.path).value().at(shard)
                               : checkpoint.path;
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(0, std::ios::end);
  const std::streamoff middle = file.tellg() / 2;
  file.seekg(middle);
  const char byte = static_cast<char>(file.get());
  file.seekp(middle);
  file.put(static_cast<char>(byte ^ 1));
}

// Flips a bit of the newest checkpoint in the memory of the machine.
void DamageCopy(const std::string& out) {
  const auto copies = ListCheckpoints(InMemoryFolder(out)).value();
  ASSERT_FALSE(copies.empty());
  Damage(copies.back(), 0);
}

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

  absl::StatusOr<TrainingRun> Prepare(const CommandLine& line, const StrategyDefinition& strategy,
                                      Losses& losses) {
    LS_ASSIGN_OR_RETURN(TrainingRun run,
                        PrepareRun(line, strategy, MakeModel, {}, LegStrategies()));
    stop_ = run.stop;
    if (distort_) run.strategy = distort_(run.strategy);
    run.strategy = Wrapped(run.strategy, [this](std::unique_ptr<Strategy> made, Rank& rank) {
      return std::make_unique<Reachable>(std::move(made), rank, reached_);
    });
    run.visit = [&losses, this](const RunPlace& place) {
      if (also_at_) also_at_(place);
      losses.Visit(place);
    };
    return run;
  }

  absl::StatusOr<EndedRun> Train(const std::string& strategy, const CommandLine& line,
                                 Losses& losses) {
    const StrategyDefinition preset = Preset(strategy);
    LS_ASSIGN_OR_RETURN(TrainingRun run, Prepare(line, preset, losses));
    const ModelFactory make_model = MakeModel;
    const std::vector<StrategyDefinition> presets = LegStrategies();
    return TrainElastic(std::move(run), {.command_line = line,
                                         .strategy = preset,
                                         .make_model = make_model,
                                         .strategies = presets});
  }

  // Without starting lost ranks again.
  absl::StatusOr<std::vector<RankReport>> TrainOnce(const std::string& strategy, CommandLine line,
                                                    Losses& losses) {
    line.elastic = false;
    LS_ASSIGN_OR_RETURN(const TrainingRun run, Prepare(line, Preset(strategy), losses));
    return TrainRanks(run);
  }

  static StrategyDefinition Preset(const std::string& name) {
    for (const StrategyDefinition& preset : LegStrategies()) {
      if (preset.name == name) return preset;
    }
    LOG(FATAL) << name;
  }

  // A bit of what the rank holds flips when it comes to the place for the first time.
  void FlipStateAt(const RunPlace& there) {
    also_at_ = [this, there,
                has_flipped = std::make_shared<std::atomic<bool>>(false)](const RunPlace& at) {
      if (at.rank != there.rank || at.step != there.step || at.where != there.where) return;
      if (has_flipped->exchange(true)) return;
      for (const StateTensor& part : reached_[static_cast<size_t>(there.rank)]->State()) {
        if (part.tensor.elements() == 0) continue;
        part.tensor.raw()[0] ^= std::byte{1};
        return;
      }
    };
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
  PlaceVisitor also_at_;               // told where ranks are
  std::shared_ptr<StopRequest> stop_;  // of the run
  // What the processors do to the strategy; null: what they should.
  std::function<StrategyDefinition(const StrategyDefinition&)> distort_;
  const std::shared_ptr<Strategy*[]> reached_ = std::make_shared<Strategy*[]>(4);  // by rank
};

// Users change configuration files for the next run while this one trains.
TEST_F(ElasticTest, TheConfigurationIsThatOfTheStart) {
  for (const std::string& later :
       {absl::StrCat(SmallGptConfig(), "[guard]\nloss_jump = 1.001\n"), std::string("half a")}) {
    ASSERT_TRUE(WriteFileAtomically(folder_ + "/workload.toml", SmallGptConfig()).ok());
    also_at_ = [&, this](const RunPlace&) {
      EXPECT_TRUE(WriteFileAtomically(folder_ + "/workload.toml", later).ok());
    };
    Losses losses({{.rank = 2, .step = 1, .where = Where::kStepBegin}});
    const auto ended = Train("ddp", Line({"mesh.dp=4"}), losses);
    ASSERT_TRUE(ended.ok()) << ended.status();
    ExpectCurveOfSingle(*ended);
  }
}

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

TEST_F(ElasticTest, GoesOnFromTheCopyInMemoryOnAnotherMesh) {
  Losses losses({{.rank = 2, .step = 3, .where = Where::kMicroBatch}});
  const auto ended = Train(
      "fsdp", Line({"mesh.dp=4", "checkpoint.every=0", "checkpoint.in_memory_every=1"}), losses);
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(ended->run->settings.mesh.dp, 2);
  const std::vector<Restart> restarts = ReadRestarts(folder_ + "/out").value();
  ASSERT_EQ(restarts.size(), 1u);
  EXPECT_EQ(restarts[0].steps, 3);  // no step is lost
  EXPECT_EQ(restarts[0].state, "memory");
  EXPECT_FALSE(PathExists(InMemoryFolder(folder_ + "/out")));
  ExpectCurveOfSingle(*ended);
}

TEST_F(ElasticTest, TakesTheNewerOfMemoryAndDisk) {
  Losses losses({{.rank = 1, .step = 3, .where = Where::kStepBegin}});
  const auto ended = Train("fsdp",
                           Line({"mesh.dp=2", "checkpoint.every=3", "checkpoint.write=step",
                                 "checkpoint.in_memory_every=2"}),
                           losses);
  ASSERT_TRUE(ended.ok()) << ended.status();
  const std::vector<Restart> restarts = ReadRestarts(folder_ + "/out").value();
  ASSERT_EQ(restarts.size(), 1u);
  EXPECT_EQ(restarts[0].steps, 3);
  EXPECT_EQ(restarts[0].state, "disk");
  ExpectCurveOfSingle(*ended);
}

TEST_F(ElasticTest, PassesADamagedCopyOver) {
  Losses losses({{.rank = 0, .step = 3, .where = Where::kStepBegin}});
  also_at_ = [this](const RunPlace& place) {
    if (place.rank == 0 && place.step == 3 && place.where == Where::kStepBegin &&
        !PathExists(folder_ + "/damaged")) {
      ASSERT_EQ(WriteFileAtomically(folder_ + "/damaged", ""), absl::OkStatus());
      DamageCopy(folder_ + "/out");
    }
  };
  const auto ended = Train("fsdp",
                           Line({"mesh.dp=2", "checkpoint.every=2", "checkpoint.write=step",
                                 "checkpoint.in_memory_every=1"}),
                           losses);
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(ended->reports[0].steps, 2);  // from the checkpoint on the disk
  const Restart restart = ReadRestarts(folder_ + "/out").value().at(0);
  EXPECT_EQ(restart.steps, 2);
  EXPECT_EQ(restart.state, "disk");
  ExpectCurveOfSingle(*ended);
}

// Rows that are trained again, and the copy behind them, have nothing to do with the checksums that
// were kept for the damaged checkpoint.
TEST_F(ElasticTest, ACopyIsSoundWhereTheCheckpointOfItsStepWasDamaged) {
  const auto loses_all = [this](const CommandLine& line) {
    Losses losses({{.rank = 0, .step = 4, .where = Where::kStepBegin},
                   {.rank = 1, .step = 4, .where = Where::kStepBegin}});
    EXPECT_THAT(std::string(TrainOnce("ddp", line, losses).status().message()),
                HasSubstr("is lost"));
  };
  const Assignments steps = {"mesh.dp=2", "train.steps=6"};
  loses_all(Line(With(steps, {"checkpoint.every=2", "checkpoint.write=step"})));
  const auto checkpoints = ListCheckpoints(folder_ + "/out/checkpoints").value();
  ASSERT_EQ(checkpoints.size(), 2u);
  Damage(checkpoints[1], 0);
  CommandLine again = Line(With(steps, {"checkpoint.every=0", "checkpoint.in_memory_every=1"}));
  again.resume = true;
  loses_all(again);
  Losses none({});
  const auto ended = TrainOnce("ddp", again, none);
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ((*ended)[0].steps, 2);  // from the copy
}

// Starting ranks again would find the same damage.
TEST_F(ElasticTest, DamageThatSomebodyHasToMendStartsNoRankAgain) {
  const Assignments mesh = {"mesh.dp=2", "checkpoint.write=step"};
  Losses losses({{.rank = 0, .step = 3, .where = Where::kStepBegin},
                 {.rank = 1, .step = 3, .where = Where::kStepBegin}});
  ASSERT_FALSE(TrainOnce("fsdp", Line(mesh), losses).ok());
  const auto checkpoints = ListCheckpoints(folder_ + "/out/checkpoints").value();
  ASSERT_EQ(checkpoints.size(), 2u);
  // Rank 0 finds damage in the older one alone, rank 1 in the newest.
  Damage(checkpoints[0], 0);
  Damage(checkpoints[1], 1);
  for (const std::string on_damage : {"go_back", "stop"}) {
    CommandLine again = Line(With(mesh, {"checkpoint.on_damage=" + on_damage}));
    again.resume = true;
    Losses none({});
    const absl::Status ended = Train("fsdp", again, none).status();
    EXPECT_EQ(ended.code(), absl::StatusCode::kFailedPrecondition) << ended;
    EXPECT_EQ(ExitCodeOfFailure(ended), 1);
    EXPECT_THAT(std::string(ended.message()),
                AllOf(HasSubstr(on_damage == "stop" ? "checkpoint.on_damage is \"stop\""
                                                    : "no checkpoint is sound"),
                      HasSubstr("step-00000003"), Not(HasSubstr("step-00000002")),
                      Not(HasSubstr("no mesh goes on"))));
    EXPECT_THAT(ReadRestarts(folder_ + "/out").value(), IsEmpty());
    EXPECT_FALSE(PathExists(folder_ + "/out/restarts.jsonl"));
  }
}

// All that the run has is in memory, and the user's mistake does not take it away.
TEST_F(ElasticTest, ACopyStaysWhereTheRunCannotGoOnAsItIsTold) {
  const Assignments in_memory = {"mesh.dp=2", "checkpoint.every=0", "checkpoint.in_memory_every=1"};
  Losses losses({{.rank = 0, .step = 2, .where = Where::kStepBegin},
                 {.rank = 1, .step = 2, .where = Where::kStepBegin}});
  // Both ranks of a run that is not elastic, which ends.
  ASSERT_FALSE(TrainOnce("ddp", Line(in_memory), losses).ok());
  const std::string copy = ListCheckpoints(InMemoryFolder(folder_ + "/out")).value().back().path;
  CommandLine again = Line(With(in_memory, {"train.seed=9"}));
  again.resume = true;
  Losses none({});
  EXPECT_THAT(std::string(TrainOnce("ddp", again, none).status().message()),
              AllOf(HasSubstr(copy), HasSubstr("train.seed"), Not(HasSubstr("sound"))));
  ASSERT_TRUE(PathExists(copy));
  again.assignments = Line(With(in_memory, {"train.steps=1"})).assignments;
  EXPECT_THAT(std::string(TrainOnce("ddp", again, none).status().message()),
              AllOf(HasSubstr("raise train.steps"), Not(HasSubstr("sound"))));
  ASSERT_TRUE(PathExists(copy));
  again.assignments = Line(in_memory).assignments;
  const auto ended = TrainOnce("ddp", again, none);
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ((*ended)[0].steps, 2);
}

TEST_F(ElasticTest, DamageOfStateThatNoOtherRankHoldsIsSeenBesideItsCopy) {
  FlipStateAt({.rank = 1, .step = 1, .where = Where::kCheckpoint});
  Losses none({});
  const auto ended =
      Train("fsdp", Line({"mesh.dp=2", "guard.every=100", "checkpoint.in_memory_every=1"}), none);
  ASSERT_TRUE(ended.ok()) << ended.status();
  const std::vector<Restart> restarts = ReadRestarts(folder_ + "/out").value();
  ASSERT_EQ(restarts.size(), 1u);
  EXPECT_THAT(restarts[0].cause, HasSubstr("step 2: wrong bits"));
  EXPECT_THAT(restarts[0].cause, HasSubstr("on rank 1 is not what its copy in memory holds"));
  EXPECT_EQ(restarts[0].steps, 2);
  ExpectCurveOfSingle(*ended);
}

TEST_F(ElasticTest, ADamagedCopyIsNamedAndTakesNoCheckpointAlong) {
  also_at_ = [this](const RunPlace& at) {
    if (at.rank == 0 && at.step == 1 && at.where == Where::kCheckpoint) {
      DamageCopy(folder_ + "/out");
    }
  };
  Losses none({});
  const auto ended = Train("fsdp",
                           Line({"mesh.dp=2", "guard.every=100", "checkpoint.write=step",
                                 "checkpoint.in_memory_every=1"}),
                           none);
  ASSERT_TRUE(ended.ok()) << ended.status();
  const std::vector<Restart> restarts = ReadRestarts(folder_ + "/out").value();
  ASSERT_EQ(restarts.size(), 1u);
  EXPECT_THAT(restarts[0].cause, HasSubstr("step 2: wrong bits: the copy in memory, read on rank"));
  EXPECT_EQ(restarts[0].steps, 2);
  EXPECT_EQ(restarts[0].state, "disk");
  ExpectCurveOfSingle(*ended);
}

// Checkpoints between two checks have the wrong bits, with checksums that are right.
TEST_F(ElasticTest, AProcessorThatGoesWrongCostsTheStepsSinceTheCheckBefore) {
  const Flip flip = {.target = Flip::Target::kGradient,
                     .rank = 3,  // none of those that go on
                     .step = 2,
                     .bit = 20,
                     .time = -1,
                     .steps = Flip::kForGood};
  distort_ = [&](const StrategyDefinition& strategy) { return WithFlip(strategy, flip, 1); };
  Losses none({});
  const auto ended = Train("ddp",
                           Line({"mesh.dp=4", "checkpoint.keep=1", "checkpoint.in_memory_every=1",
                                 "guard.every=2", "guard.repeat_on=\"other_rank\""}),
                           none);
  ASSERT_TRUE(ended.ok()) << ended.status();
  const std::vector<Restart> restarts = ReadRestarts(folder_ + "/out").value();
  ASSERT_EQ(restarts.size(), 1u);
  EXPECT_THAT(restarts[0].cause, HasSubstr("step 4: wrong bits"));
  EXPECT_EQ(restarts[0].steps, 2);  // though there was a checkpoint of 3, and a copy in memory
  EXPECT_TRUE(PathExists(folder_ + "/out/checkpoints/step-00000003.safetensors.suspect"));
  ExpectCurveOfSingle(*ended);
}

// The rank is wrong from the second step on, of both attempts that come before the first check. The
// second one goes on from a checkpoint that nothing vouches for.
TEST_F(ElasticTest, ACheckpointOfAnEarlierAttemptIsAsSuspectAsTheStepsBehindIt) {
  const Flip flip = {.target = Flip::Target::kGradient,
                     .rank = 1,
                     .step = 1,
                     .bit = 20,
                     .time = -1,
                     .steps = Flip::kForGood};
  distort_ = [&](const StrategyDefinition& strategy) {
    const StrategyDefinition wrong = WithFlip(strategy, flip, 1);
    StrategyDefinition either = strategy;
    either.make = [this, wrong, strategy](StrategyInputs inputs) {
      const bool is_wrong = ReadRestarts(folder_ + "/out").value().empty();
      return (is_wrong ? wrong : strategy).make(std::move(inputs));
    };
    return either;
  };
  Losses losses({{.rank = 0, .step = 2, .where = Where::kStepBegin}});
  const auto ended = Train("ddp",
                           Line({"mesh.dp=4", "checkpoint.write=step", "checkpoint.keep=4",
                                 "guard.every=3", "guard.repeat_on=\"other_rank\""}),
                           losses);
  ASSERT_TRUE(ended.ok()) << ended.status();
  const std::vector<Restart> restarts = ReadRestarts(folder_ + "/out").value();
  ASSERT_EQ(restarts.size(), 2u);
  EXPECT_EQ(restarts[0].steps, 2);
  EXPECT_THAT(restarts[1].cause, HasSubstr("step 3: wrong bits"));
  EXPECT_EQ(restarts[1].steps, 0);
  ExpectCurveOfSingle(*ended);
}

// A checkpoint of the state that was checked may have been saved when it had changed.
TEST_F(ElasticTest, StateThatChangesBehindItsCheckLeavesAnOlderCheckpoint) {
  FlipStateAt({.rank = 1, .step = 2, .where = Where::kStepBegin});
  Losses none({});
  const auto ended = Train("fsdp", Line({"mesh.dp=2", "guard.every=2", "checkpoint.keep=1"}), none);
  ASSERT_TRUE(ended.ok()) << ended.status();
  const std::vector<Restart> restarts = ReadRestarts(folder_ + "/out").value();
  ASSERT_EQ(restarts.size(), 1u);
  EXPECT_THAT(restarts[0].cause, HasSubstr("has changed in memory since the step before"));
  EXPECT_EQ(restarts[0].steps, 1);
  ExpectCurveOfSingle(*ended);
}

// The first rank writes the copy.
TEST_F(ElasticTest, AReplicaThatHasPartedIsNotCopiedIntoMemory) {
  FlipStateAt({.rank = 0, .step = 2, .where = Where::kStepBegin});
  Losses none({});
  const auto ended = Train(
      "ddp",
      Line({"mesh.dp=4", "checkpoint.every=0", "checkpoint.in_memory_every=1", "guard.every=100"}),
      none);
  ASSERT_TRUE(ended.ok()) << ended.status();
  const std::vector<Restart> restarts = ReadRestarts(folder_ + "/out").value();
  ASSERT_EQ(restarts.size(), 1u);
  EXPECT_THAT(restarts[0].cause, HasSubstr("step 3: wrong bits"));
  EXPECT_EQ(restarts[0].steps, 2);
  EXPECT_EQ(restarts[0].state, "memory");
  ExpectCurveOfSingle(*ended);
}

TEST_F(ElasticTest, AStopEndsTheStepThatRanksAreAtNow) {
  Losses losses({{.rank = 1, .step = 3, .where = Where::kStepBegin}});
  also_at_ = [&](const RunPlace& place) {
    if (place.step == 1 && place.where == Where::kStepBegin && losses.all_have_come())
      stop_->Stop();
  };
  const auto ended = Train("ddp", Line({"mesh.dp=2", "checkpoint.every=0"}), losses);
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(ended->reports[0].steps_behind, 2);
}

TEST_F(ElasticTest, ARestartIsWrittenDownWhenTheNextStepComes) {
  Losses losses({{.rank = 1, .step = 1, .where = Where::kStepBegin}});
  std::atomic<int> rows_at_last_step = -1;
  also_at_ = [&](const RunPlace& place) {
    if (place.step != 3 || place.where != Where::kStepBegin) return;
    rows_at_last_step = static_cast<int>(ReadRestarts(folder_ + "/out").value().size());
  };
  const auto ended = Train("ddp", Line({"mesh.dp=2"}), losses);
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(rows_at_last_step, 1);
  EXPECT_TRUE(ReadRestarts(folder_ + "/out").value()[0].went_on());
}

TEST_F(ElasticTest, SaysWhyNoMeshGoesOn) {
  Losses losses({{.rank = 1, .step = 1, .where = Where::kStepBegin}});
  const auto ended =
      Train("ddp", Line({"mesh.dp=2", "guard.every=1", "guard.repeat_on=\"other_rank\""}), losses);
  EXPECT_THAT(std::string(ended.status().message()),
              AllOf(HasSubstr("rank 1 is lost"), HasSubstr("with the 1 rank left no mesh goes on"),
                    HasSubstr("guard.repeat_on")));
  CommandLine line = Line({"train.legs=[\"2: ddp dp=2\", \"2: ddp dp=4\"]"});
  line.elastic_prefer = "ddp dp=1";
  Losses none({});
  EXPECT_THAT(std::string(Train("mesh", line, none).status().message()),
              HasSubstr("a run with legs keeps its meshes"));
}

TEST_F(ElasticTest, TheLastRankEndsTheRun) {
  Losses losses({{.rank = 1, .step = 1, .where = Where::kStepBegin},
                 {.rank = 0, .step = 2, .where = Where::kStepBegin}});
  const auto ended = Train("ddp", Line({"mesh.dp=2"}), losses);
  EXPECT_THAT(std::string(ended.status().message()), HasSubstr("rank 0 is lost"));
}

}  // namespace
}  // namespace lockstep
