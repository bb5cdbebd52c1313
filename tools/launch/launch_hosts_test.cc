// Where the launcher starts ranks: hosts that a discovery script names, and machines with memory of
// their own.

#include <signal.h>
#include <stdlib.h>  // setenv
#include <unistd.h>  // usleep

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/file.h"
#include "core/base/subprocess.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/report/restart_log.h"
#include "core/run/stop/run_signals.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/launch/rank_processes.h"
#include "tools/launch/testing/launch_fixture.h"
#include "tools/launch/worker_group.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

using Kind = LaunchedProcess::Kind;

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

// mpirun's own files and those of the ranks lie in another folder than the launcher's, as on a host
// without the launcher.
TEST_F(LaunchTest, NothingIsLeftInTheMemoryOfOtherHosts) {
  const std::string there = GroupFolder::PathOf(path("other_host"));
  fs::remove_all(there);
  const std::string earlier = there + "/vader_segment.earlier.0.1.0";
  fs::create_directories(there);
  ASSERT_EQ(WriteFileAtomically(earlier, "left"), absl::OkStatus());
  const std::string rank =
      Script("rank.sh", absl::StrCat("worker=$1; shift 2; exec $worker ", there, " \"$@\"\n"));
  const std::string launcher = Script(
      "launcher.sh", absl::StrCat("ranks=$1; shift\nexport OMPI_MCA_orte_tmpdir_base=", there,
                                  " OMPI_MCA_btl_vader_backing_directory=", there,
                                  "\nexec build_defs/mpi_test.sh $ranks ", rank, " \"$@\"\n"));
  Subprocess run = Start({"--ranks", "2", "--launcher", launcher + " {ranks}"});
  AwaitSteps(60);
  EXPECT_FALSE(PathExists(earlier));
  Kill(Kind::kRank);
  ExpectTheRunOfSingle(run.Wait());
  EXPECT_THAT(ReadRestarts(out()).value(), SizeIs(1));
  // mpirun, which ends last, may leave the folder, empty.
  std::error_code is_gone;
  for (const auto& entry : fs::recursive_directory_iterator(there, is_gone)) {
    EXPECT_TRUE(entry.is_directory()) << entry.path();
  }
  fs::remove_all(there);
}

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

// Ranks take a second signal for the wish to end at once, unless it comes within a second.
TEST_F(LaunchTest, ASignalAfterRanksWereStoppedForMoreHostsLeavesThemTheirCheckpoint) {
  const std::string back = path("host_is_back"), asked = path("asked"), answer = path("answer");
  const std::string script =
      Script("hosts.sh", absl::StrCat("[ -e ", back, " ] || exec echo localhost:2\ntouch ", asked,
                                      "\nwhile [ ! -e ", answer, " ]; do sleep 0.02; done\n",
                                      "echo localhost:4\n"));
  const std::string told = path("told");
  Subprocess launcher = StartFromShell(
      "exec 2> " + told, {"--ranks", "4", "--min_ranks", "2", "--host_discovery_script", script},
      {"--set", "train.steps=100000"});
  AwaitSteps(30);
  ASSERT_EQ(WriteFileAtomically(back, ""), absl::OkStatus());
  AwaitFile(asked);
  Kill(Kind::kRank, SIGSTOP);  // amid a long step
  ASSERT_EQ(WriteFileAtomically(answer, ""), absl::OkStatus());
  AwaitText(told, "hosts with 4 slots are at hand: stopping the ranks");
  usleep(1'200'000);
  launcher.Signal(SIGTERM);
  AwaitText(told, "SIGTERM: ");
  Kill(Kind::kRank, SIGCONT);
  EXPECT_EQ(launcher.Wait().exit_code, kStoppedExitCode) << ReadFile(told).value_or("");
  const auto checkpoints = ListCheckpoints(out() + "/checkpoints").value();
  ASSERT_THAT(checkpoints, Not(IsEmpty()));
  EXPECT_EQ(checkpoints.back().step, Steps());
  EXPECT_THAT(ReadRestarts(out()).value(), IsEmpty());
  AwaitNoProcess();
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

}  // namespace
}  // namespace lockstep
