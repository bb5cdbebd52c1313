#include "core/base/subprocess.h"

#include <pthread.h>  // pthread_sigmask
#include <signal.h>   // kill, sigset_t
#include <stdlib.h>   // setenv
#include <unistd.h>   // getpid, usleep

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

ProcessOptions Shell(const std::string& script) { return {.arguments = {"/bin/sh", "-c", script}}; }

TEST(SubprocessTest, CapturesBothStreamsAndTheExitCode) {
  const auto result = RunProcess(Shell("echo to out; echo to err >&2; exit 3"));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->out, "to out\n");
  EXPECT_EQ(result->err, "to err\n");
  EXPECT_EQ(result->exit_code, 3);
  EXPECT_EQ(result->Describe(), "exit code 3");
  EXPECT_FALSE(result->ok());
}

// More than a pipe holds, on both streams at once: neither may block the other.
TEST(SubprocessTest, TakesMoreThanAPipeHolds) {
  const auto result =
      RunProcess(Shell("head -c 1000000 /dev/zero & head -c 900000 /dev/zero >&2; wait"));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->ok());
  EXPECT_EQ(result->out.size(), 1000000u);
  EXPECT_EQ(result->err.size(), 900000u);
}

TEST(SubprocessTest, PassesArgumentsAsTheyAre) {
  const auto result =
      RunProcess({.arguments = {"/bin/sh", "-c", "printf '%s|' \"$@\"", "sh", "a b", "", "$HOME"}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->out, "a b||$HOME|");
}

TEST(SubprocessTest, LaysItsEnvironmentOverOurs) {
  setenv("SUBPROCESS_TEST_KEPT", "kept", 1);
  setenv("SUBPROCESS_TEST_CHANGED", "before", 1);
  ProcessOptions options = Shell("echo $SUBPROCESS_TEST_KEPT $SUBPROCESS_TEST_CHANGED");
  options.environment = {{"SUBPROCESS_TEST_CHANGED", "after"}};
  const auto result = RunProcess(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->out, "kept after\n");
}

TEST(SubprocessTest, StandardInputIsEmpty) {
  const auto result = RunProcess(Shell("cat"));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->out, "");
}

TEST(SubprocessTest, NamesAProgramThatIsNotThere) {
  const auto result = RunProcess({.arguments = {"/no/such/program"}});
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("/no/such/program"));
}

TEST(SubprocessTest, TellsWhichSignalEndedIt) {
  auto process = Subprocess::Start(Shell("exec sleep 100"));
  ASSERT_TRUE(process.ok()) << process.status();
  process->Signal(SIGKILL);
  const ProcessResult result = process->Wait();
  EXPECT_EQ(result.signal, SIGKILL);
  EXPECT_EQ(result.Describe(), "killed by signal 9 (Killed)");
  EXPECT_FALSE(result.interrupted);
}

TEST(SubprocessTest, TellsWhetherItHasEnded) {
  auto process = Subprocess::Start(Shell("exit 3"));
  ASSERT_TRUE(process.ok()) << process.status();
  while (!process->HasEnded()) usleep(1000);
  EXPECT_EQ(process->Wait().exit_code, 3);
  auto running = Subprocess::Start(Shell("exec sleep 100"));
  ASSERT_TRUE(running.ok()) << running.status();
  EXPECT_FALSE(running->HasEnded());
}

// Ctrl-C reaches the program, and we live on.
TEST(SubprocessTest, PassesAnInterruptOn) {
  auto process = Subprocess::Start(Shell("exec sleep 100"));
  ASSERT_TRUE(process.ok()) << process.status();
  kill(getpid(), SIGINT);  // held back until Wait takes it
  const ProcessResult result = process->Wait();
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(result.signal, SIGINT);
}

// A caller that holds interrupts back, to tidy up later, still ends the program.
TEST(SubprocessTest, ProgramsDoNotInheritThatInterruptsAreHeldBack) {
  sigset_t held, before;
  sigemptyset(&held);
  sigaddset(&held, SIGINT);
  pthread_sigmask(SIG_BLOCK, &held, &before);
  auto process = Subprocess::Start(Shell("exec sleep 100"));
  ASSERT_TRUE(process.ok()) << process.status();
  process->Signal(SIGINT);
  EXPECT_EQ(process->Wait().signal, SIGINT);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST(SubprocessTest, ProgramsThatNobodyWaitedForAreKilled) {
  pid_t pid = 0;
  {
    const auto process = Subprocess::Start(Shell("exec sleep 100"));
    ASSERT_TRUE(process.ok()) << process.status();
    pid = process->pid();
    EXPECT_EQ(kill(pid, 0), 0);
  }
  EXPECT_EQ(kill(pid, 0), -1);
}

}  // namespace
}  // namespace lockstep
