#include "core/base/background_task.h"

#include <sys/resource.h>  // setpriority

#include <algorithm>
#include <utility>

#include "core/base/program.h"

namespace lockstep {
namespace {

// Each step of niceness divides a thread's weight in the scheduler by 1.25: 15 of them by 28.
constexpr int kNicer = 15;
constexpr int kNicest = 19;

// Linux keeps a niceness for each thread. Where it cannot be raised the thread runs all the same.
void LowerPriority() {
  const int niceness = getpriority(PRIO_PROCESS, 0);
  setpriority(PRIO_PROCESS, 0, std::min(niceness + kNicer, kNicest));
}

}  // namespace

BackgroundTask::BackgroundTask(std::function<absl::Status(std::stop_token)> run,
                               Priority priority) {
  std::promise<absl::Status> result;
  result_ = result.get_future().share();
  thread_ = std::jthread(
      [run = std::move(run), promise = std::move(result), priority](std::stop_token stop) mutable {
        if (priority == Priority::kLow) LowerPriority();
        promise.set_value(Catching([&] { return run(std::move(stop)); }));
      });
}

}  // namespace lockstep
