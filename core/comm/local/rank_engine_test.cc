#include "core/comm/local/rank_engine.h"

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr auto kNoDeadline = Parking::TimePoint::max();

TEST(RankEngineTest, WaitEndsWithTheDeadline) {
  for (const RankEngine::Cores cores : {RankEngine::Cores::kOwn, RankEngine::Cores::kShared}) {
    RankEngine engine(cores);
    EXPECT_FALSE(engine.WaitUntil([] { return false; },
                                  std::chrono::steady_clock::now() + std::chrono::milliseconds(5)));
  }
}

// Notifications meet a thread that polls, one about to sleep, and one asleep.
TEST(RankEngineTest, NoNotificationIsLost) {
  RankEngine engine(RankEngine::Cores::kShared);
  std::atomic<int> ball = 0;
  std::thread peer([&] {
    for (int i = 0; i < 3000; ++i) {
      engine.WaitUntil([&] { return ball.load() == 2 * i + 1; }, kNoDeadline);
      ball.store(2 * i + 2);
      engine.Notify();
    }
  });
  for (int i = 0; i < 3000; ++i) {
    ball.store(2 * i + 1);
    engine.Notify();
    engine.WaitUntil([&] { return ball.load() == 2 * i + 2; }, kNoDeadline);
  }
  peer.join();
}

TEST(RankEngineTest, WorkerRunsJobs) {
  RankEngine engine(RankEngine::Cores::kShared);
  std::promise<std::thread::id> ran;
  engine.AddJob([&] { ran.set_value(std::this_thread::get_id()); });
  EXPECT_NE(ran.get_future().get(), std::this_thread::get_id());
}

class Counting final : public Background {
 public:
  void Advance() override {
    ++advanced;
    advanced.notify_all();
  }
  std::atomic<int> advanced = 0;
};

TEST(RankEngineTest, NotifyWakesTheWorkerOnlyWhereNeeded) {
  RankEngine engine(RankEngine::Cores::kShared);
  Counting background;
  engine.Add(&background);
  engine.Notify();
  engine.AddNeedy();
  engine.Notify();
  background.advanced.wait(0);
  engine.RemoveNeedy();
  engine.Remove(&background);  // lets the worker finish
  const int advanced = background.advanced;
  engine.Notify();
  std::promise<void> later;
  engine.AddJob([&] { later.set_value(); });
  later.get_future().wait();
  EXPECT_EQ(background.advanced, advanced);
}

}  // namespace
}  // namespace lockstep
