#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <stop_token>
#include <thread>

#include "absl/status/status.h"

namespace lockstep {

// A function that runs on a thread of its own. Beside training, its priority is so low that it
// takes about a thirtieth of a core that other threads want, and all of a core that is idle.
//
//   BackgroundTask task([&](std::stop_token stop) { return WriteFiles(stop); });
//   while (!task.WaitFor(std::chrono::seconds(1))) { ... }
//   LS_RETURN_IF_ERROR(task.Result());
class BackgroundTask {
 public:
  enum class Priority {
    kLow,
    kOfStarter,  // for work that others wait for
  };

  // Starts `run`. It should look at its token and return early when a stop is requested. What it
  // throws becomes a status: that of a StatusException, ResourceExhausted for std::bad_alloc.
  explicit BackgroundTask(std::function<absl::Status(std::stop_token)> run,
                          Priority priority = Priority::kLow);
  // Requests a stop, and waits until the function returns.
  ~BackgroundTask() = default;

  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

  // Waits for the end of the function, at most for `limit`. Returns whether it has ended.
  bool WaitFor(std::chrono::nanoseconds limit) const {
    return result_.wait_for(limit) == std::future_status::ready;
  }
  // What the function returned. Waits for its end.
  absl::Status Result() const { return result_.get(); }

 private:
  std::shared_future<absl::Status> result_;
  std::jthread thread_;  // joined first: the last member
};

}  // namespace lockstep
