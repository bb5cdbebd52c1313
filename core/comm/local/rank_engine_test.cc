#include "core/comm/local/rank_engine.h"

#include <atomic>
#include <chrono>
#include <future>
#include <new>
#include <thread>

#include "absl/status/status.h"
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

// Without somebody to hear of it, what a job throws would end the program.
TEST(RankEngineTest, WhatAJobThrowsIsHandedOver) {
  std::promise<absl::Status> heard;
  RankEngine engine(RankEngine::Cores::kShared,
                    [&heard](const absl::Status& failure) { heard.set_value(failure); });
  engine.AddJob([] { throw std::bad_alloc(); });
  EXPECT_TRUE(absl::IsResourceExhausted(heard.get_future().get()));
  std::promise<void> ran;
  engine.AddJob([&ran] { ran.set_value(); });
  ran.get_future().wait();
}

class Counting final : public Background {
 public:
  void Advance() override {
    ++advanced;
    advanced.notify_all();
  }
  std::atomic<int> advanced = 0;
};

// Notify does not wake the worker for what is patient, Urge does, and neither for nothing.
TEST(RankEngineTest, TheWorkerIsWokenOnlyWhereNeeded) {
  using Need = RankEngine::Need;
  for (const Need need : {Need::kNone, Need::kPatient, Need::kNeedy}) {
    RankEngine engine(RankEngine::Cores::kShared);
    Counting background;
    engine.Add(&background);
    engine.Add(need);
    const auto expect_woken = [&](bool expected) {
      if (expected) return background.advanced.wait(0);
      // Long enough for a worker that was woken.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_EQ(background.advanced, 0);
    };
    engine.Notify();
    expect_woken(need == Need::kNeedy);
    engine.Remove(&background);  // lets the worker finish
    background.advanced = 0;
    engine.Add(&background);
    engine.Urge();
    expect_woken(need != Need::kNone);
    engine.Remove(&background);
    engine.Remove(need);
  }
}

// A wait that takes long says so once, before it sleeps.
TEST(RankEngineTest, LongWaitsAreDelayed) {
  for (const RankEngine::Cores cores : {RankEngine::Cores::kOwn, RankEngine::Cores::kShared}) {
    RankEngine engine(cores);
    int delays = 0;
    EXPECT_TRUE(engine.WaitUntil([&] { return delays > 0; }, kNoDeadline, [&] { ++delays; }));
    EXPECT_EQ(delays, 1);
    EXPECT_TRUE(engine.WaitUntil([] { return true; }, kNoDeadline, [&] { ++delays; }));
    EXPECT_EQ(delays, 1);
  }
}

}  // namespace
}  // namespace lockstep
