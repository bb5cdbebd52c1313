#include "core/base/worker_benefit.h"

#include <chrono>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Duration = WorkerBenefit::Duration;

// A machine on which the thread alone takes 100 us for a loop, and with one worker 50 us and what
// it waits for the worker.
class Machine {
 public:
  // Runs loops until `span` has passed. Returns their number.
  int Run(Duration span, Duration waits, bool disturbed = false) {
    const WorkerBenefit::Clock::time_point end = now_ + span;
    int loops = 0;
    for (; now_ < end; ++loops) {
      if (!benefit_.Shares(now_)) {
        now_ += microseconds(100);
        continue;
      }
      // The thread's own chunk lasts longer when it loses its core, by which it judges the other.
      const Duration own = microseconds(disturbed ? 5000 : 50);
      now_ += own + waits;
      benefit_.Record(own, waits, own);
      if (benefit_.HasWindow()) benefit_.Judge(now_, disturbed);
    }
    return loops;
  }
  // One loop that waits for its worker.
  void Hiccup(Duration waits) { Run(microseconds(1), waits); }
  bool Shares() const { return benefit_.Shares(now_); }

 private:
  WorkerBenefit benefit_;
  WorkerBenefit::Clock::time_point now_ =
      WorkerBenefit::Clock::time_point() + std::chrono::hours(1);
};

constexpr Duration kQuiet = microseconds(0);
constexpr Duration kStall = milliseconds(6);

TEST(WorkerBenefitTest, SharesAllLoopsOfAQuietMachine) {
  Machine machine;
  EXPECT_EQ(machine.Run(milliseconds(100), kQuiet), 2000);
  EXPECT_TRUE(machine.Shares());
}

TEST(WorkerBenefitTest, AMachineThatStaysBusyCostsLittle) {
  Machine machine;
  machine.Run(milliseconds(3000), kStall);
  const int loops = machine.Run(milliseconds(20000), kStall);
  EXPECT_GE(loops, 198000) << "of the 200000 that the thread makes alone";
  EXPECT_LT(loops, 200000) << "it never tried again";
}

TEST(WorkerBenefitTest, ComesBackWithinTheLongestRest) {
  Machine machine;
  machine.Run(milliseconds(5000), kStall);
  machine.Run(WorkerBenefit::kLongestRest, kQuiet);
  EXPECT_EQ(machine.Run(milliseconds(100), kQuiet), 2000);
}

TEST(WorkerBenefitTest, HiccupsBetweenGoodTimesChangeNothing) {
  Machine machine;
  for (int round = 0; round < 50; ++round) {
    machine.Run(milliseconds(30), kQuiet);
    machine.Hiccup(kStall);
    ASSERT_TRUE(machine.Shares()) << round;
  }
}

// A good time between two stalls that is shorter than what the stalls cost.
TEST(WorkerBenefitTest, WorkersRestWhereStallsCostMoreThanTheySave) {
  Machine machine;
  int resting = 0;
  for (int round = 0; round < 100; ++round) {
    machine.Run(milliseconds(3), kQuiet);
    machine.Hiccup(kStall);
    resting += machine.Shares() ? 0 : 1;
  }
  EXPECT_GE(resting, 90);
}

TEST(WorkerBenefitTest, ADisturbedThreadLearnsNothingOfWhatWorkersSave) {
  Machine machine;
  machine.Run(milliseconds(100), kQuiet, /*disturbed=*/true);
  machine.Hiccup(milliseconds(3));
  EXPECT_FALSE(machine.Shares());
}

}  // namespace
}  // namespace lockstep
