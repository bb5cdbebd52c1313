// How a launched run ends: complete, stopped by a signal, or given up.

#include <fcntl.h>  // O_RDWR
#include <signal.h>
#include <unistd.h>  // usleep

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/subprocess.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/report/restart_log.h"
#include "core/run/directory/run_directory.h"
#include "core/run/directory/run_lock.h"
#include "core/run/stop/exit_codes.h"
#include "core/run/stop/run_signals.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/launch/rank_processes.h"
#include "tools/launch/testing/launch_fixture.h"
#include "tools/launch/worker_group.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

using Kind = LaunchedProcess::Kind;

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

// No rank has noticed, as none has saved anything since. However late the test is, there are steps
// left.
TEST_F(LaunchTest, ARankThatIsLostAfterTheDirectoryIsNotStartedAgain) {
  Subprocess launcher =
      Start({"--ranks", "2"}, {"--set", "checkpoint.every=0", "--set", "train.steps=100000"});
  AwaitSteps(60);
  fs::rename(out(), path("away"));
  Kill(Kind::kRank);
  const ProcessResult result = launcher.Wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("was removed while the run wrote to it"));
  EXPECT_THAT(result.err, HasSubstr("killed by signal 9 (Killed)), are not started again"));
  EXPECT_FALSE(PathExists(out()));
}

// Ranks that have begun say themselves why they cannot save their steps.
TEST_F(LaunchTest, ASignalAfterTheDirectoryHasTheRanksSayThatItIsGone) {
  Subprocess launcher =
      Start({"--ranks", "2"}, {"--set", "checkpoint.every=0", "--set", "train.steps=100000"});
  AwaitSteps(60);
  fs::rename(out(), path("away"));
  launcher.Signal(SIGTERM);
  const ProcessResult result = launcher.Wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("was removed while the run wrote to it"));
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

// As under nohup, and as the background job of a script.
TEST_F(LaunchTest, SignalsThatWereIgnoredFromTheStartAreNoWishToStop) {
  Subprocess launcher = StartFromShell("trap '' HUP INT", {"--ranks", "2"});
  AwaitSteps(30);
  launcher.Signal(SIGHUP);
  launcher.Signal(SIGINT);
  const ProcessResult result = launcher.Wait();
  ExpectTheRunOfSingle(result);
  EXPECT_THAT(result.err, Not(HasSubstr("telling the ranks to stop")));
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

// Its files then have earlier times than the launcher's clock.
TEST_F(LaunchTest, AFileServerWhoseClockIsBehindDoesNotHideThatRanksHaveBegun) {
  const std::string waiting =
      Script("waiting.sh",
             absl::StrCat("touch ", path("starting"), "\nwhile [ ! -e ", path("go"),
                          " ]; do sleep 0.02; done\n", "exec build_defs/mpi_test.sh \"$@\"\n"));
  Subprocess launcher =
      Start({"--ranks", "2", "--launcher", waiting + " {ranks}"}, {"--set", "train.steps=100000"});
  AwaitFile(path("starting"));
  launcher.Signal(SIGSTOP);  // it does not see files with their first times
  ASSERT_EQ(WriteFileAtomically(path("go"), ""), absl::OkStatus());
  AwaitSteps(30);
  const std::string lock = out() + "/" + kRunLockFile;
  fs::last_write_time(lock, fs::last_write_time(lock) - std::chrono::hours(1));
  launcher.Signal(SIGTERM);
  launcher.Signal(SIGCONT);
  const ProcessResult result = launcher.Wait();
  EXPECT_EQ(result.exit_code, kStoppedExitCode) << result.err;
  EXPECT_EQ(ListCheckpoints(out() + "/checkpoints").value().back().step, Steps());
}

// A file server keeps the lock of a host that has died for a while.
TEST_F(LaunchTest, TheLockOfAHostThatHasDiedIsWaitedFor) {
  {
    Subprocess launcher = Start({"--ranks", "2"});
    AwaitSteps(60);
    launcher.Signal(SIGKILL);
    launcher.Wait();
    AwaitNoProcess();
  }
  const std::string lock = out() + "/" + kRunLockFile;
  const int64_t steps = Steps();
  absl::StatusOr<FileDescriptor> held = OpenRegularFile(lock, O_RDWR);
  ASSERT_TRUE(held.ok()) << held.status();
  // A process that is ending closes its files after /proc has lost its command line.
  const int64_t start = NowNanos();
  while (!LockRun(lock, *held).ok() && SecondsSince(start) < kLongestSeconds) usleep(2000);
  ASSERT_EQ(LockRun(lock, *held), absl::OkStatus());
  std::ofstream(lock) << "host elsewhere, process 7\n";
  const std::string err = path("err.txt");
  Subprocess launcher = StartFromShell(absl::StrCat("exec 2> ", err), {"--ranks", "2"});
  AwaitText(err, lock + " is locked by host elsewhere, process 7; if that host has died");
  EXPECT_EQ(Steps(), steps);
  *held = FileDescriptor();
  ExpectTheRunOfSingle(launcher.Wait());
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

// Ranks that were started again would find it again.
TEST_F(LaunchTest, DamageOfAllCheckpointsIsNotRetried) {
  {
    Subprocess launcher = Start({"--ranks", "2"});
    AwaitSteps(30);
    launcher.Signal(SIGTERM);
    EXPECT_EQ(launcher.Wait().exit_code, kStoppedExitCode);
  }
  for (const auto& entry : fs::recursive_directory_iterator(out() + "/checkpoints")) {
    if (entry.path().extension() != ".safetensors" || !entry.is_regular_file()) continue;
    std::string bytes = ReadFile(entry.path().string()).value();
    bytes.back() ^= 1;
    ASSERT_EQ(WriteFileAtomically(entry.path().string(), bytes), absl::OkStatus());
  }
  const ProcessResult result = Start({"--ranks", "2"}).Wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("no checkpoint is sound"));
  EXPECT_THAT(ReadRestarts(out()).value(),
              ElementsAre(Field(&Restart::cause, "the launcher was started again")));
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
