#include "core/run/stop/run_signals.h"

#include <unistd.h>  // getpid

#include <chrono>
#include <csignal>
#include <cstdlib>  // std::exit
#include <memory>
#include <optional>
#include <thread>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ExitedWithCode;

TEST(StopRequestTest, AllRanksStopAfterTheLatestStepThatWasBegun) {
  StopRequest stop;
  EXPECT_EQ(stop.Stop(), std::nullopt);
  EXPECT_TRUE(stop.MayBegin(4));  // rank 0, of a resumed run
  EXPECT_TRUE(stop.MayBegin(5));
  EXPECT_EQ(stop.Stop(), 6);
  EXPECT_EQ(stop.Stop(), 6);
  EXPECT_TRUE(stop.MayBegin(4));  // rank 1, which is behind
  EXPECT_TRUE(stop.MayBegin(5));
  EXPECT_FALSE(stop.MayBegin(6));
  EXPECT_EQ(stop.stopped_after(), 6);
}

// Waits for a signal that ends the process.
void Wait() { std::this_thread::sleep_for(std::chrono::minutes(1)); }

void SignalTwice(std::chrono::milliseconds between,
                 RunSignals::Notice notice = RunSignals::Notice::kWithStep) {
  const auto stop = std::make_shared<StopRequest>();
  RunSignals signals(stop, kSignalsOfThreads);
  signals.SetNotice(notice);
  stop->MayBegin(0);
  kill(getpid(), SIGTERM);
  std::this_thread::sleep_for(between);
  kill(getpid(), SIGINT);
  if (between < std::chrono::milliseconds(500)) {
    while (!stop->stopped_after()) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    std::exit(7);
  }
  Wait();
}

void SignalBeforeTheFirstStep() {
  const RunSignals signals(std::make_shared<StopRequest>(), kSignalsOfThreads);
  kill(getpid(), SIGHUP);
  Wait();
}

TEST(RunSignalsTest, ASecondSignalEndsAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(SignalTwice(std::chrono::milliseconds(1200)), ExitedWithCode(128 + SIGINT),
              "^SIGTERM: stopping after step 1; a second signal ends at once\nended by SIGINT; ");
  EXPECT_EXIT(SignalBeforeTheFirstStep(), ExitedWithCode(128 + SIGHUP), "^ended by SIGHUP; ");
}

// As Ctrl-C comes from the terminal and again from the program that has started ours.
TEST(RunSignalsTest, TwoSignalsAtOnceAreOne) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(SignalTwice(std::chrono::milliseconds(0)), ExitedWithCode(7),
              "^SIG[A-Z]+: stopping after step 1; a second signal ends at once\n$");
}

// Each process of a run hears the signal, and knows the step that it has begun itself.
TEST(RunSignalsTest, OneOfTheProcessesOfARunSaysThatItStops) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  using Notice = RunSignals::Notice;
  EXPECT_EXIT(SignalTwice(std::chrono::milliseconds(0), Notice::kWithoutStep), ExitedWithCode(7),
              "^SIG[A-Z]+: stopping after the step that is being trained; a second signal ends at "
              "once\n$");
  EXPECT_EXIT(SignalTwice(std::chrono::milliseconds(0), Notice::kNone), ExitedWithCode(7), "^$");
  EXPECT_EXIT(SignalTwice(std::chrono::milliseconds(1200), Notice::kNone),
              ExitedWithCode(128 + SIGINT), "^ended by SIGINT; ");
}

}  // namespace
}  // namespace lockstep
