#include "core/base/background_task.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <new>
#include <stdexcept>
#include <thread>

#include "core/base/status.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

TEST(BackgroundTaskTest, RunsBesideItsOwnerAtALowerPriority) {
  std::promise<void> go;
  int niceness = 0;
  BackgroundTask task([&](std::stop_token) {
    go.get_future().wait();
    niceness = getpriority(PRIO_PROCESS, 0);
    return absl::NotFoundError("what it returns");
  });
  EXPECT_FALSE(task.WaitFor(milliseconds(1)));
  go.set_value();
  EXPECT_EQ(task.Result(), absl::NotFoundError("what it returns"));
  EXPECT_TRUE(task.WaitFor(milliseconds(0)));
  const int own = getpriority(PRIO_PROCESS, 0);
  EXPECT_EQ(niceness, std::min(own + 15, 19));
}

TEST(BackgroundTaskTest, WhatOthersWaitForHasTheirPriority) {
  int niceness = 0;
  BackgroundTask task(
      [&](std::stop_token) {
        niceness = getpriority(PRIO_PROCESS, 0);
        return absl::OkStatus();
      },
      BackgroundTask::Priority::kOfStarter);
  EXPECT_EQ(task.Result(), absl::OkStatus());
  EXPECT_EQ(niceness, getpriority(PRIO_PROCESS, 0));
}

TEST(BackgroundTaskTest, StopsWhenItsOwnerGoes) {
  bool has_stopped = false;
  {
    BackgroundTask task([&](std::stop_token stop) {
      while (!stop.stop_requested()) std::this_thread::yield();
      has_stopped = true;
      return absl::OkStatus();
    });
  }
  EXPECT_TRUE(has_stopped);
}

TEST(BackgroundTaskTest, WhatIsThrownBecomesAStatus) {
  BackgroundTask thrown([](std::stop_token) -> absl::Status {
    throw StatusException(absl::DataLossError("thrown"));
  });
  EXPECT_EQ(thrown.Result(), absl::DataLossError("thrown"));
  BackgroundTask memory([](std::stop_token) -> absl::Status { throw std::bad_alloc(); });
  EXPECT_TRUE(absl::IsResourceExhausted(memory.Result()));
  BackgroundTask length([](std::stop_token) -> absl::Status { throw std::length_error("vector"); });
  EXPECT_TRUE(absl::IsResourceExhausted(length.Result()));
  BackgroundTask other([](std::stop_token) -> absl::Status { throw std::runtime_error("other"); });
  EXPECT_TRUE(absl::IsInternal(other.Result()));
}

}  // namespace
}  // namespace lockstep
