// The launcher as a user starts it, while processes of the run are killed.

#include <signal.h>
#include <stdlib.h>  // setenv
#include <unistd.h>  // usleep

#include <algorithm>
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
#include "core/run/stop/run_signals.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "strategies/testing/launched_run.h"
#include "tools/launch/rank_processes.h"
#include "tools/launch/worker_group.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

using Kind = LaunchedProcess::Kind;

constexpr double kLongestSeconds = 60;  // for what a test waits for

constexpr char kTables[] = R"([train]
steps = 300
[cut]
shards = 4
[checkpoint]
every = 25
)";

// Changes a bit amid a file, or amid the first shard of a checkpoint.
void Damage(const std::string& checkpoint) {
  const std::string file = IsDirectory(checkpoint) ? ListShards(checkpoint).value()[0] : checkpoint;
  std::string bytes = ReadFile(file).value();
  bytes[bytes.size() / 2] ^= 1;
  ASSERT_EQ(WriteFileAtomically(file, bytes), absl::OkStatus());
}

// A run whose ranks soon give up waiting for each other.
const std::vector<std::string> kSoon = {"--set", "run.timeout_seconds=2"};

class LaunchTest : public LaunchedRunTest {
 protected:
  LaunchTest() : LaunchedRunTest("strategies/single/main", LaunchedGpt(2, kTables)) {
    const ProcessResult single = Run({}, "single");
    EXPECT_TRUE(single.ok()) << single.err;
  }

  std::string out() const { return fs::weakly_canonical(path("out")).string(); }

  Subprocess Start(const std::vector<std::string>& flags,
                   const std::vector<std::string>& arguments = {}) const {
    std::vector<std::string> all = {"tools/launch/launch", "--strategy", "ddp"};
    all.insert(all.end(), flags.begin(), flags.end());
    if (std::find(flags.begin(), flags.end(), "--launcher") == flags.end()) {
      all.insert(all.end(), {"--launcher", "build_defs/mpi_test.sh {ranks}"});
    }
    all.insert(all.end(), {"--", "--config", path("workload.toml"), "--out", out()});
    all.insert(all.end(), arguments.begin(), arguments.end());
    return Subprocess::Start({.arguments = all}).value();
  }

  // The path of a program that it makes.
  std::string Script(const std::string& name, const std::string& text) const {
    const std::string script = path(name);
    EXPECT_EQ(WriteFileAtomically(script, "#!/bin/sh\n" + text), absl::OkStatus());
    fs::permissions(script, fs::perms::owner_all);
    return script;
  }
  // A launcher that outlives its ranks, as mpirun that waits for a host which it cannot reach.
  std::string WaitingLauncher() const {
    return Script("waiting.sh", "build_defs/mpi_test.sh \"$@\"\nsleep 600\n");
  }

  // Steps in losses.csv.
  int64_t Steps() const {
    const std::string text = ReadFile(out() + "/losses.csv").value_or("");
    return std::max<int64_t>(0, std::count(text.begin(), text.end(), '\n') - 1);
  }

  void AwaitSteps(int64_t steps) const {
    const int64_t start = NowNanos();
    while (Steps() < steps && SecondsSince(start) < kLongestSeconds) usleep(2000);
    ASSERT_GE(Steps(), steps);
  }

  static void AwaitFile(const std::string& path) {
    const int64_t start = NowNanos();
    while (!PathExists(path) && SecondsSince(start) < kLongestSeconds) usleep(2000);
    ASSERT_TRUE(PathExists(path)) << path;
  }

  void Kill(Kind kind, int number = SIGKILL) const {
    for (const LaunchedProcess& process : ProcessesOf(out())) {
      if (process.kind != kind) continue;
      kill(process.pid, number);
      return;
    }
    ADD_FAILURE() << "no such process";
  }

  void AwaitNoProcess() const {
    const int64_t start = NowNanos();
    while (!ProcessesOf(out()).empty() && SecondsSince(start) < kLongestSeconds) usleep(2000);
    EXPECT_THAT(ProcessesOf(out()), IsEmpty());
  }

  void ExpectTheRunOfSingle(const ProcessResult& result) const {
    ASSERT_TRUE(result.ok()) << result.Describe() << result.err;
    EXPECT_EQ(File("out/losses.csv"), File("single/losses.csv"));
    EXPECT_EQ(Summary("out")["parameter_hash"], Summary("single")["parameter_hash"]);
    AwaitNoProcess();
    EXPECT_FALSE(PathExists(GroupFolder::PathOf(out())));
    EXPECT_FALSE(PathExists(out() + ".1"));
    for (const auto& entry : fs::recursive_directory_iterator(out())) {
      EXPECT_THAT(entry.path().string(), Not(HasSubstr(".tmp")));
    }
  }
};

TEST_F(LaunchTest, GoesOnAfterEachKindOfProcessWasKilled) {
  Subprocess launcher = Start({"--ranks", "2"});
  // The checkpoint of step 25 is written beside later steps, and is whole before the next begins.
  AwaitSteps(60);
  Kill(Kind::kRank);
  AwaitSteps(100);
  Kill(Kind::kMpirun);
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

// Four ranks of fsdp on four machines, which are folders here. One of them goes down amid the run,
// with what is in its memory.
class MachinesTest : public LaunchTest {
 protected:
  // The run goes on with a rank on each of `left`, "0 2".
  void Lose(int lost, int ranks_left, const std::string& left, int of_launcher) {
    const std::string down = path("one_is_down"), memory = path("memory");
    for (int i = 0; i < 6; ++i) fs::create_directories(absl::StrCat(memory, i));
    const std::string hosts = Script(
        "hosts.sh",
        absl::StrCat("[ -e ", down, " ] && echo localhost:", ranks_left, " || echo localhost:4\n"));
    const std::string rank = Script(
        "rank.sh",
        absl::StrCat("shift $OMPI_COMM_WORLD_RANK; export LOCKSTEP_MEMORY=", memory,
                     "$1\nwhile [ \"$1\" != -- ]; do shift; done; shift\n", "exec \"$@\"\n"));
    const std::string launcher =
        Script("launcher.sh",
               absl::StrCat("ranks=$1; shift; machines='0 1 2 3'\n", "if [ -e ", down,
                            " ]; then rm -rf ", memory, lost, "; machines='", left, "'; fi\n",
                            "exec build_defs/mpi_test.sh $ranks ", rank, " $machines -- \"$@\"\n"));
    ASSERT_EQ(setenv("LOCKSTEP_MEMORY", absl::StrCat(memory, of_launcher).c_str(), /*overwrite=*/1),
              0);
    Subprocess run =
        Start({"--strategy", "fsdp", "--ranks", "4", "--min_ranks", "2", "--host_discovery_script",
               hosts, "--launcher", launcher + " {ranks}"},
              {"--set", "checkpoint.every=0", "--set", "checkpoint.in_memory_every=10"});
    AwaitSteps(60);
    ASSERT_EQ(WriteFileAtomically(down, ""), absl::OkStatus());
    Kill(Kind::kRank);
    const ProcessResult result = run.Wait();
    ASSERT_EQ(unsetenv("LOCKSTEP_MEMORY"), 0);
    ExpectTheRunOfSingle(result);
    const auto restarts = ReadRestarts(out()).value();
    ASSERT_THAT(restarts, SizeIs(1));
    EXPECT_EQ(restarts[0].state, "memory");
    EXPECT_GE(restarts[0].steps, 50);
    for (const auto machine : absl::StrSplit(left, ' ')) {
      EXPECT_TRUE(fs::is_empty(absl::StrCat(memory, machine))) << machine;
    }
  }
};

// Each has half of the state.
TEST_F(MachinesTest, TwoOfThoseThatAreLeftGoOn) {
  Lose(1, 2, "0 2", /*of_launcher=*/2);
  EXPECT_EQ(ReadRestarts(out()).value().at(0).formation, "fsdp pp=1,dp=2,tp=1");
}

// And has rank 0, which finds no checkpoint of its own to go on from.
TEST_F(MachinesTest, AnotherOneTakesThePlace) { Lose(0, 4, "4 1 2 3", /*of_launcher=*/2); }

// As on a cluster's login node.
TEST_F(MachinesTest, TheLauncherMayBeOnOneWithoutRanks) { Lose(3, 2, "0 2", /*of_launcher=*/5); }

TEST_F(LaunchTest, TakesHostsInThatComeBackAtTheNextCheckpoint) {
  const std::string back = path("host_is_back");
  const std::string script = Script(
      "hosts.sh",
      absl::StrCat("if [ -e ", back, " ]; then echo localhost:4; else echo localhost:2; fi\n"));
  Subprocess launcher =
      Start({"--ranks", "4", "--min_ranks", "2", "--host_discovery_script", script});
  AwaitSteps(30);
  EXPECT_THAT(ReadRestarts(out()).value(), IsEmpty());  // without more slots nothing is stopped
  ASSERT_EQ(WriteFileAtomically(back, ""), absl::OkStatus());
  ExpectTheRunOfSingle(launcher.Wait());
  EXPECT_EQ(Summary("out")["ranks"], 4);
  const auto restarts = ReadRestarts(out()).value();
  ASSERT_THAT(restarts, SizeIs(1));
  EXPECT_EQ(restarts[0].cause, "hosts with 4 slots are at hand");
  EXPECT_EQ(restarts[0].formation, "ddp pp=1,dp=4,tp=1");
  EXPECT_GE(restarts[0].steps, 30);  // the ranks were asked to stop: no step was lost
  EXPECT_TRUE(restarts[0].went_on());
}

// A discovery script that hangs once, when the file `hang` is there, which it renames `hanging`.
class HangingDiscoveryTest : public LaunchTest {
 protected:
  std::string HangingScript(int slots) const {
    return Script("hosts.sh",
                  absl::StrCat("mv ", path("hang"), " ", path("hanging"),
                               " 2>/dev/null && exec sleep 600\necho localhost:", slots, "\n"));
  }
};

TEST_F(HangingDiscoveryTest, ASignalIsHeardWhileRanksTrain) {
  const std::vector<std::string> flags = {
      "--ranks", "4", "--min_ranks", "2", "--host_discovery_script", HangingScript(2)};
  Subprocess launcher = Start(flags);
  AwaitSteps(30);
  ASSERT_EQ(WriteFileAtomically(path("hang"), ""), absl::OkStatus());
  AwaitFile(path("hanging"));
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait().exit_code, kStoppedExitCode);
  EXPECT_LT(Steps(), 300);
  AwaitNoProcess();
  ExpectTheRunOfSingle(Start(flags).Wait());
}

TEST_F(HangingDiscoveryTest, ASignalIsHeardBetweenRestarts) {
  Subprocess launcher = Start({"--ranks", "2", "--host_discovery_script", HangingScript(2)});
  AwaitSteps(30);
  ASSERT_EQ(WriteFileAtomically(path("hang"), ""), absl::OkStatus());
  Kill(Kind::kRank);
  AwaitFile(path("hanging"));
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait().exit_code, 128 + SIGTERM);
}

TEST_F(LaunchTest, ADiscoveryScriptThatFailsBetweenRestartsIsAskedAgain) {
  // Each call takes a line away: what it does the next time.
  const std::string calls = path("calls");
  const std::string script =
      Script("hosts.sh", absl::StrCat("next=$(head -n 1 ", calls, ")\nsed -i 1d ", calls,
                                      "\neval \"$next\"\necho localhost:2\n"));
  ASSERT_EQ(WriteFileAtomically(calls, "\nexit 3\nexec sleep 600\necho rubbish\n"),
            absl::OkStatus());
  Subprocess launcher =
      Start({"--ranks", "2", "--host_discovery_script", script, "--longest_discovery", "5"});
  AwaitSteps(60);
  Kill(Kind::kRank);
  const ProcessResult result = launcher.Wait();
  ExpectTheRunOfSingle(result);
  EXPECT_THAT(result.err, HasSubstr("hosts.sh: exit code 3; waiting"));
  EXPECT_THAT(result.err, HasSubstr("hosts.sh: has not ended within 5.0 s"));
  EXPECT_THAT(result.err, HasSubstr("\"rubbish\" is no host with its number of slots"));
  EXPECT_THAT(ReadRestarts(out()).value(), SizeIs(1));
}

TEST_F(LaunchTest, ADiscoveryScriptThatHasNeverWorkedIsAMistake) {
  const ProcessResult result =
      Start({"--ranks", "2", "--host_discovery_script", Script("hosts.sh", "exit 3\n")}).Wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("hosts.sh: exit code 3"));
  EXPECT_THAT(result.err, Not(HasSubstr("waiting")));
}

TEST_F(LaunchTest, ARemovedDirectoryIsNotMadeAgain) {
  Subprocess launcher = Start({"--ranks", "2"});
  AwaitSteps(60);
  fs::rename(out(), path("away"));
  const ProcessResult result = launcher.Wait();
  EXPECT_EQ(result.exit_code, 1);
  const std::vector<std::string> lines = absl::StrSplit(result.err, '\n');
  EXPECT_THAT(lines, Contains(HasSubstr("was removed while the run wrote to it")).Times(1))
      << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("going on")));
  EXPECT_FALSE(PathExists(out()));
  EXPECT_FALSE(ListCheckpoints(path("away/checkpoints")).value().empty());
}

// No rank has noticed, as none has saved anything since.
TEST_F(LaunchTest, ARankThatIsLostAfterTheDirectoryIsNotStartedAgain) {
  Subprocess launcher =
      Start({"--ranks", "2"}, {"--set", "checkpoint.every=0", "--set", "train.steps=1500"});
  AwaitSteps(60);
  fs::rename(out(), path("away"));
  Kill(Kind::kRank);
  const ProcessResult result = launcher.Wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("was removed while the run wrote to it"));
  EXPECT_THAT(result.err, HasSubstr("killed by signal 9 (Killed)), are not started again"));
  EXPECT_FALSE(PathExists(out()));
}

// Ranks that began with the first step would set the run aside.
TEST_F(LaunchTest, CheckpointsThatCannotBeListedAreNotPassedOver) {
  {
    Subprocess launcher = Start({"--ranks", "2"});
    AwaitSteps(60);
    launcher.Signal(SIGKILL);
    launcher.Wait();
    AwaitNoProcess();
  }
  fs::rename(out() + "/checkpoints", path("checkpoints"));
  ASSERT_EQ(WriteFileAtomically(out() + "/checkpoints", "no folder"), absl::OkStatus());
  const std::string losses = File("out/losses.csv");
  const ProcessResult result = Start({"--ranks", "2"}).Wait();
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("cannot list folder \"" + out() + "/checkpoints\""));
  EXPECT_EQ(File("out/losses.csv"), losses);
  EXPECT_FALSE(PathExists(out() + ".1"));
}

TEST_F(LaunchTest, ASignalStopsTheRunWithACheckpoint) {
  Subprocess launcher = Start({"--ranks", "2"});
  AwaitSteps(30);
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait().exit_code, kStoppedExitCode);
  EXPECT_LT(Steps(), 300);
  AwaitNoProcess();
  ExpectTheRunOfSingle(Start({"--ranks", "2"}).Wait());
}

// As mpirun, which takes the signal before it has started any process.
TEST_F(LaunchTest, ASignalBeforeRanksHaveBegunEndsThem) {
  const std::string early =
      Script("early.sh", absl::StrCat("trap 'taken=1' USR1\ntouch ", path("starting"),
                                      "\nwhile [ -z \"$taken\" ]; do sleep 0.05; done\n",
                                      "exec build_defs/mpi_test.sh \"$@\"\n"));
  {
    Subprocess launcher = Start({"--ranks", "2", "--launcher", early + " {ranks}"});
    AwaitFile(path("starting"));
    launcher.Signal(SIGTERM);
    EXPECT_EQ(launcher.Wait().exit_code, 128 + SIGTERM);
    EXPECT_EQ(Steps(), 0);
    AwaitNoProcess();
  }
  // Also where ranks were to go on.
  {
    Subprocess launcher = Start({"--ranks", "2"});
    AwaitSteps(30);
    launcher.Signal(SIGTERM);
    EXPECT_EQ(launcher.Wait().exit_code, kStoppedExitCode);
  }
  const int64_t steps = Steps();
  fs::remove(path("starting"));
  {
    Subprocess launcher = Start({"--ranks", "2", "--launcher", early + " {ranks}"});
    AwaitFile(path("starting"));
    launcher.Signal(SIGTERM);
    EXPECT_EQ(launcher.Wait().exit_code, 128 + SIGTERM);
    EXPECT_EQ(Steps(), steps);
  }
  // Ranks that have gone on stop with a checkpoint.
  {
    Subprocess launcher = Start({"--ranks", "2"});
    AwaitSteps(steps + 30);
    launcher.Signal(SIGTERM);
    EXPECT_EQ(launcher.Wait().exit_code, kStoppedExitCode);
  }
  ExpectTheRunOfSingle(Start({"--ranks", "2"}).Wait());
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

TEST_F(LaunchTest, ErrorsOfTheUserAreNotRetried) {
  const ProcessResult before = Start({"--ranks", "2"}, {"--set", "model.widht=3"}).Wait();
  EXPECT_EQ(before.exit_code, 1);
  EXPECT_THAT(before.err, HasSubstr("widht"));
  // One that only ranks can find.
  fs::create_directories(out());
  ASSERT_EQ(WriteFileAtomically(out() + "/notes.txt", "mine"), absl::OkStatus());
  const ProcessResult after = Start({"--ranks", "2"}).Wait();
  EXPECT_EQ(after.exit_code, 1);
  EXPECT_THAT(after.err, HasSubstr("holds files that are no run's"));
  EXPECT_THAT(after.err, Not(HasSubstr("going on")));
  EXPECT_THAT(ReadRestarts(out()).value(), IsEmpty());
  EXPECT_FALSE(PathExists(GroupFolder::PathOf(out())));
}

// mpirun wakes a stopped rank up before it kills it; it adds nothing to what the others have told.
TEST_F(LaunchTest, AStoppedRankIsToldOfOnceAndTheRunGoesOn) {
  Subprocess launcher = Start({"--ranks", "4"}, kSoon);
  AwaitSteps(60);
  Kill(Kind::kRank, SIGSTOP);
  const ProcessResult result = launcher.Wait();
  ExpectTheRunOfSingle(result);
  const std::vector<std::string> lines = absl::StrSplit(result.err, '\n');
  EXPECT_THAT(lines, Contains(HasSubstr("no answer within 2.0 s: ")).Times(1)) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("was told to stop")));
  EXPECT_THAT(result.err, Not(HasSubstr("Primary job")));
  EXPECT_THAT(ReadRestarts(out()).value(), SizeIs(1));
}

TEST_F(LaunchTest, WithoutRestartsTheWordOfTheRanksIsTheOnlyOne) {
  Subprocess launcher = Start({"--ranks", "4", "--max_restarts", "0"}, kSoon);
  AwaitSteps(60);
  Kill(Kind::kRank, SIGSTOP);
  const ProcessResult result = launcher.Wait();
  EXPECT_EQ(result.exit_code, kRankLostExitCode);
  std::vector<std::string> lines = absl::StrSplit(result.err, '\n', absl::SkipEmpty());
  std::erase_if(lines, [](const std::string& line) {  // what is trained
    return line.starts_with("  ") || line.starts_with("launched under ");
  });
  EXPECT_THAT(lines, ElementsAre(StartsWith("no answer within 2.0 s: ")));
  AwaitNoProcess();
  ExpectTheRunOfSingle(Start({"--ranks", "4"}).Wait());
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

TEST_F(LaunchTest, ACompleteRunIsNotBegunAgainForItsLaunchersExitCode) {
  for (const char* code : {"1", "137"}) {
    const std::string failing =
        Script("failing.sh", absl::StrCat("build_defs/mpi_test.sh \"$@\"\nexit ", code, "\n"));
    fs::remove_all(out());
    ExpectTheRunOfSingle(Start({"--ranks", "2", "--launcher", failing + " {ranks}"}).Wait());
    EXPECT_THAT(ReadRestarts(out()).value(), IsEmpty());
  }
}

TEST_F(LaunchTest, ACompleteRunWithoutCheckpointsIsNotBegunAgain) {
  const std::string failing = Script("failing.sh", "build_defs/mpi_test.sh \"$@\"\nexit 1\n");
  for (const char* copies : {"checkpoint.in_memory_every=0", "checkpoint.in_memory_every=50"}) {
    const std::vector<std::string> none = {"--set", "checkpoint.keep=0", "--set", copies};
    fs::remove_all(out());
    ExpectTheRunOfSingle(Start({"--ranks", "2", "--launcher", failing + " {ranks}"}, none).Wait());
    const ProcessResult again = Start({"--ranks", "2"}, none).Wait();
    ExpectTheRunOfSingle(again);
    EXPECT_THAT(again.err, HasSubstr("the run is complete"));
    EXPECT_THAT(ReadRestarts(out()).value(), IsEmpty());
  }
}

TEST_F(LaunchTest, ARunThatEndedEarlyIsComplete) {
  const std::string failing = Script("failing.sh", "build_defs/mpi_test.sh \"$@\"\nexit 1\n");
  for (const int keep : {0, 2}) {
    // No loss is lower than another one by 100.
    const auto patient = [keep](int patience) -> std::vector<std::string> {
      return {"--set", "validation.every=10",
              "--set", absl::StrCat("validation.patience=", patience),
              "--set", "validation.min_delta=100",
              "--set", absl::StrCat("checkpoint.keep=", keep)};
    };
    fs::remove_all(out());
    const ProcessResult first =
        Start({"--ranks", "2", "--launcher", failing + " {ranks}"}, patient(2)).Wait();
    EXPECT_TRUE(first.ok()) << first.err;
    EXPECT_EQ(Summary("out")["steps"], 30);
    EXPECT_THAT(ReadRestarts(out()).value(), IsEmpty());
    const ProcessResult again = Start({"--ranks", "2"}, patient(2)).Wait();
    EXPECT_TRUE(again.ok()) << again.err;
    EXPECT_THAT(again.err, HasSubstr("the run is complete"));
    EXPECT_FALSE(PathExists(out() + ".1"));
    if (keep == 0) continue;
    // More patience goes on, as with --resume.
    const ProcessResult more = Start({"--ranks", "2"}, patient(3)).Wait();
    EXPECT_TRUE(more.ok()) << more.err;
    EXPECT_EQ(Summary("out")["steps"], 40);
    EXPECT_FALSE(PathExists(out() + ".1"));
  }
}

TEST_F(LaunchTest, ALauncherThatBringsNoRanksTogetherIsEnded) {
  const std::string sleeping = Script("sleeping.sh", "sleep 600\n");
  const ProcessResult result =
      Start({"--ranks", "2", "--max_restarts", "1", "--longest_start", "1", "--launcher", sleeping})
          .Wait();
  EXPECT_EQ(result.exit_code, kRankLostExitCode);
  EXPECT_THAT(result.err, HasSubstr("the ranks have ended 2 times without a new checkpoint, the "
                                    "last time by the launcher has brought no ranks together "
                                    "within 1.0 s"));
}

// What the launcher says itself is shown where no rank was there to say anything.
TEST_F(LaunchTest, ALauncherThatCannotStartRanksIsHeard) {
  const std::string border(74, '-');
  const std::string full =
      Script("full.sh", absl::StrCat("printf '%s\\n' '", border, "' 'not enough slots' '", border,
                                     "' >&2\nexit 1\n"));
  const ProcessResult result = Start({"--ranks", "2", "--launcher", full}).Wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("not enough slots"));
}

TEST_F(LaunchTest, GivesUpWhereRanksDieAgainAndAgain) {
  const std::string dying = Script("dying.sh", "kill -9 $$\n");
  const ProcessResult result =
      Start({"--ranks", "2", "--max_restarts", "1", "--launcher", dying}).Wait();
  EXPECT_EQ(result.exit_code, kRankLostExitCode);  // it may go well later
  EXPECT_THAT(result.err, HasSubstr("the ranks have ended 2 times without a new checkpoint"));
}

}  // namespace
}  // namespace lockstep
