// The launcher as a user starts it: runs that lose processes go on.

#include <signal.h>
#include <unistd.h>  // usleep

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/subprocess.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/checkpoint/in_memory.h"
#include "core/report/restart_log.h"
#include "core/run/stop/exit_codes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/launch/rank_processes.h"
#include "tools/launch/testing/launch_fixture.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using ::testing::Contains;
using ::testing::Each;
using ::testing::Field;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

using Kind = LaunchedProcess::Kind;

// Changes a bit amid a file, or amid the first shard of a checkpoint.
void Damage(const std::string& checkpoint) {
  const std::string file = IsDirectory(checkpoint) ? ListShards(checkpoint).value()[0] : checkpoint;
  std::string bytes = ReadFile(file).value();
  bytes[bytes.size() / 2] ^= 1;
  ASSERT_EQ(WriteFileAtomically(file, bytes), absl::OkStatus());
}

TEST_F(LaunchTest, GoesOnAfterEachKindOfProcessWasKilled) {
  Subprocess launcher = Start({"--ranks", "2"});
  // The checkpoint of step 25 is written beside later steps, and is whole before the next begins.
  AwaitSteps(60);
  Kill(Kind::kRank);
  AwaitRestarts(1);
  AwaitSteps(100);
  Kill(Kind::kMpirun);
  AwaitRestarts(2);
  AwaitSteps(150);
  Kill(Kind::kWorker);
  ExpectTheRunOfSingle(launcher.Wait());
  const auto restarts = ReadRestarts(out()).value();
  ASSERT_THAT(restarts, SizeIs(3));
  EXPECT_THAT(restarts[0].cause, StartsWith("rank "));
  EXPECT_THAT(restarts[0].cause, HasSubstr("killed by signal 9"));
  EXPECT_GE(restarts[0].steps, 25);
  EXPECT_THAT(restarts[1].cause, HasSubstr("the launcher: killed by signal 9"));
  EXPECT_THAT(restarts, Each(Field(&Restart::seconds, Ge(0))));
}

// Users change configuration files for the next run while this one trains.
TEST_F(LaunchTest, TheConfigurationIsThatOfTheStart) {
  Subprocess launcher = Start({"--ranks", "2"});
  AwaitSteps(60);
  ASSERT_TRUE(WriteFileAtomically(path("workload.toml"), LaunchedGpt(4, "")).ok());
  Kill(Kind::kRank);
  AwaitRestarts(1);
  AwaitSteps(120);
  ASSERT_TRUE(WriteFileAtomically(path("workload.toml"), "half a").ok());
  Kill(Kind::kRank);
  ExpectTheRunOfSingle(launcher.Wait());
}

TEST_F(LaunchTest, TheSameCommandGoesOnWhenTheLauncherWasKilled) {
  {
    Subprocess launcher = Start({"--ranks", "2"});
    // Before the first checkpoint, and after the launcher has marked the directory: without the
    // mark, the next start would set the directory aside.
    const int64_t start = NowNanos();
    while (!PathExists(out() + "/" + kRestartsFile) && SecondsSince(start) < kLongestSeconds) {
      usleep(1000);
    }
    launcher.Signal(SIGKILL);
    launcher.Wait();
    AwaitNoProcess();
  }
  {
    Subprocess launcher = Start({"--ranks", "2"});
    AwaitSteps(60);
    launcher.Signal(SIGKILL);
    launcher.Wait();
    AwaitNoProcess();
  }
  ExpectTheRunOfSingle(Start({"--ranks", "2"}).Wait());
  const ProcessResult complete = Start({"--ranks", "2"}).Wait();
  EXPECT_TRUE(complete.ok());
  EXPECT_THAT(complete.err, HasSubstr("the run is complete"));
}

TEST_F(LaunchTest, GoesOnWithFewerRanksOnTheSameCurve) {
  const std::string script =
      Script("hosts.sh",
             absl::StrCat("if [ -e ", out(),
                          "/checkpoints ]; then echo localhost:3; else echo localhost:4; fi\n"));
  Subprocess launcher =
      Start({"--ranks", "4", "--min_ranks", "1", "--host_discovery_script", script});
  AwaitSteps(100);
  Kill(Kind::kRank);
  ExpectTheRunOfSingle(launcher.Wait());
  EXPECT_EQ(Summary("out")["ranks"], 2);
  const auto restarts = ReadRestarts(out()).value();
  ASSERT_THAT(restarts, SizeIs(1));
  EXPECT_EQ(restarts[0].formation, "ddp pp=1,dp=2,tp=1");
}

TEST_F(LaunchTest, CopiesInMemoryOutliveRanksAndTheLauncher) {
  const std::vector<std::string> copies = {"--set", "checkpoint.every=0", "--set",
                                           "checkpoint.in_memory_every=10"};
  {
    Subprocess launcher = Start({"--ranks", "2"}, copies);
    AwaitSteps(60);
    Kill(Kind::kRank);
    AwaitRestarts(1);
    AwaitSteps(120);
    launcher.Signal(SIGKILL);
    launcher.Wait();
    AwaitNoProcess();
  }
  ExpectTheRunOfSingle(Start({"--ranks", "2"}, copies).Wait());
  const auto restarts = ReadRestarts(out()).value();
  ASSERT_THAT(restarts, SizeIs(2));
  EXPECT_THAT(restarts, Each(Field(&Restart::state, "memory")));
  EXPECT_GE(restarts[0].steps, 50);
  EXPECT_GE(restarts[1].steps, 110);
  EXPECT_FALSE(PathExists(InMemoryFolder(out())));
}

TEST_F(LaunchTest, ARunWhoseCopiesAreLostIsNotBegunAnew) {
  const std::vector<std::string> copies = {"--set", "checkpoint.every=0", "--set",
                                           "checkpoint.in_memory_every=10"};
  {
    Subprocess launcher = Start({"--ranks", "2"}, copies);
    AwaitSteps(60);
    launcher.Signal(SIGKILL);
    launcher.Wait();
    AwaitNoProcess();
  }
  RemoveInMemoryFolder(out());
  // As a kill amid a row leaves it.
  const std::string metrics = File("out/metrics.jsonl");
  ASSERT_EQ(WriteFileAtomically(out() + "/metrics.jsonl",
                                metrics + "{\"step\": 59, \"copy_in_memory\": {"),
            absl::OkStatus());
  const std::string losses = File("out/losses.csv");
  const ProcessResult again = Start({"--ranks", "2"}, copies).Wait();
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.err, HasSubstr("To begin again with the first step, move " + out() + " away"));
  EXPECT_EQ(File("out/losses.csv"), losses);
}

// The launcher sees which state is the newest, and ranks pass it over where it is damaged.
TEST_F(LaunchTest, TheLogSaysWhatRanksReallyWentOnFrom) {
  const std::vector<std::string> copies = {"--set", "checkpoint.in_memory_every=20"};
  {
    Subprocess launcher = Start({"--ranks", "2"}, copies);
    AwaitSteps(90);
    launcher.Signal(SIGKILL);
    launcher.Wait();
    AwaitNoProcess();
  }
  const auto in_memory = ListCheckpoints(InMemoryFolder(out())).value();
  ASSERT_THAT(in_memory, Not(IsEmpty()));
  for (const FoundCheckpoint& copy : in_memory) Damage(copy.path);
  const auto on_disk = ListCheckpoints(out() + "/checkpoints").value();
  ASSERT_GE(on_disk.size(), 2);
  Damage(on_disk.back().path);
  const int64_t sound = on_disk[on_disk.size() - 2].step;
  ExpectTheRunOfSingle(Start({"--ranks", "2"}, copies).Wait());
  const auto restarts = ReadRestarts(out()).value();
  ASSERT_THAT(restarts, SizeIs(1));
  EXPECT_EQ(restarts[0].steps, sound);
  EXPECT_EQ(restarts[0].state, "disk");
  EXPECT_TRUE(restarts[0].went_on());
  const nlohmann::json told = Summary("out")["restarts"][0];
  EXPECT_EQ(told["steps"], sound);
  EXPECT_EQ(told["state"], "disk");
}

TEST_F(LaunchTest, TheSummaryHasARestartThatNoStepFollows) {
  ExpectTheRunOfSingle(Start({"--ranks", "2"}).Wait());
  // As a kill leaves it that comes after the last checkpoint.
  fs::remove(out() + "/summary.json");
  ExpectTheRunOfSingle(Start({"--ranks", "2"}).Wait());
  const auto restarts = ReadRestarts(out()).value();
  ASSERT_THAT(restarts, SizeIs(1));
  EXPECT_EQ(restarts[0].steps, 300);
  EXPECT_FALSE(restarts[0].went_on());
  const nlohmann::json told = Summary("out")["restarts"];
  ASSERT_EQ(told.size(), 1);
  EXPECT_EQ(told[0], nlohmann::json::parse(restarts[0].ToRow()));
}

TEST_F(LaunchTest, LegsThatAreNotReachedNeedNoRanks) {
  const std::vector<std::string> more = {
      "--set", R"(train.legs=["20: ddp dp=2", "40: single", "40: ddp dp=4"])", "--set",
      "train.steps=60"};
  ASSERT_TRUE(Run({}, "single", {"--set", "train.steps=60"}).ok());
  for (const std::vector<std::string>& flags : {std::vector<std::string>(), {"--ranks", "2"}}) {
    fs::remove_all(out());
    ExpectTheRunOfSingle(Start(flags, more).Wait());
  }
}

// The engine on one rank, which a leg calls `single`, takes the tables of all mechanisms.
TEST_F(LaunchTest, LegsOnOneRankTakeTheKeysOfTheOthers) {
  ASSERT_TRUE(Run({}, "single", {"--set", "train.steps=40"}).ok());
  ExpectTheRunOfSingle(Start({}, {"--set", R"(train.legs=["20: single", "20: ddp dp=2"])", "--set",
                                  "train.steps=40", "--set", "data_parallel.bucket_bytes=4096"})
                           .Wait());
}

// mpirun wakes a stopped rank up before it kills it; it adds nothing to what the others have told.
TEST_F(LaunchTest, AStoppedRankIsToldOfOnceAndTheRunGoesOn) {
  Subprocess launcher = Start({"--ranks", "4"}, kSoon);
  AwaitSteps(60);
  Kill(Kind::kRank, SIGSTOP);
  const ProcessResult result = launcher.Wait();
  ExpectTheRunOfSingle(result);
  const std::vector<std::string> lines = absl::StrSplit(result.err, '\n');
  EXPECT_THAT(lines, Contains(StartsWith("no answer within 2.0 s: ")).Times(1)) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("was told to stop")));
  EXPECT_THAT(result.err, Not(HasSubstr("Primary job")));
  const auto restarts = ReadRestarts(out()).value();
  ASSERT_THAT(restarts, SizeIs(1));
  EXPECT_THAT(restarts[0].cause, StartsWith("no answer within 2.0 s: "));
  EXPECT_EQ(Summary("out")["restarts"][0]["cause"], restarts[0].cause);
}

TEST_F(LaunchTest, ALauncherThatOutlivesItsRanksIsEnded) {
  Subprocess launcher = Start(
      {"--ranks", "2", "--max_restarts", "0", "--launcher", WaitingLauncher() + " {ranks}"}, kSoon);
  AwaitSteps(30);
  Kill(Kind::kRank, SIGSTOP);
  const ProcessResult result = launcher.Wait();
  EXPECT_EQ(result.exit_code, kRankLostExitCode);
  EXPECT_THAT(result.err, HasSubstr("no answer within 2.0 s: "));
  AwaitNoProcess();
}

TEST_F(LaunchTest, ALauncherThatOutlivesAKilledRankIsEnded) {
  // With one rank, no other is there to tell of it.
  Subprocess launcher =
      Start({"--ranks", "1", "--max_restarts", "0", "--launcher", WaitingLauncher() + " {ranks}"});
  AwaitSteps(30);
  Kill(Kind::kRank);
  const ProcessResult result = launcher.Wait();
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("a rank has ended before its time, but the launcher has not"));
  AwaitNoProcess();
}

// On a busy machine a worker hears of both at once.
TEST_F(LaunchTest, ARankThatDiedBeforeItsLauncherEndedItIsNamed) {
  Subprocess launcher = Start({"--ranks", "1"});
  AwaitSteps(60);
  Kill(Kind::kWorker, SIGSTOP);
  Kill(Kind::kRank);
  Kill(Kind::kWorker, SIGTERM);
  Kill(Kind::kWorker, SIGCONT);
  ExpectTheRunOfSingle(launcher.Wait());
  const auto restarts = ReadRestarts(out()).value();
  ASSERT_THAT(restarts, SizeIs(1));
  EXPECT_EQ(restarts[0].cause, "rank 0: killed by signal 9 (Killed)");
}

// A killed srun leaves a process that has Slurm end the ranks.
TEST_F(LaunchTest, WhatAKilledLauncherLeavesHasAMomentForItsWork) {
  const std::string leaving = Script(
      "leaving.sh",
      absl::StrCat("sh -c 'while kill -0 $0; do sleep 0.1; done; sleep 0.5; echo done >> ",
                   path("left"), "' $$ 2> /dev/null &\nexec build_defs/mpi_test.sh \"$@\"\n"));
  Subprocess launcher = Start({"--ranks", "2", "--launcher", leaving + " {ranks}"});
  AwaitSteps(60);
  Kill(Kind::kMpirun);
  ExpectTheRunOfSingle(launcher.Wait());
  // The killed one, and the next one at its end.
  EXPECT_EQ(File("left"), "done\ndone\n");
}

// mpirun then ends its ranks and has exit code 1, as where the user has made a mistake.
TEST_F(LaunchTest, GoesOnAfterMpirunWasToldToEnd) {
  // Ranks train on for up to a second before mpirun has ended them, so there must be steps left.
  const std::vector<std::string> long_run = {"--set", "train.steps=1500"};
  ASSERT_TRUE(Run({}, "single", long_run).ok());
  Subprocess launcher = Start({"--ranks", "2"}, long_run);
  AwaitSteps(60);
  Kill(Kind::kMpirun, SIGTERM);
  ExpectTheRunOfSingle(launcher.Wait());
  EXPECT_THAT(ReadRestarts(out()).value(), SizeIs(1));
}

}  // namespace
}  // namespace lockstep
