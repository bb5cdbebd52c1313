#include "core/comm/nccl/watch.h"

#include <chrono>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/program.h"
#include "core/base/status.h"

namespace lockstep::nccl {
namespace {

constexpr std::chrono::milliseconds kLook(5);

}  // namespace

Watch::~Watch() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watch::Add(std::shared_ptr<Comm> comm, DeviceMarkPtr end, std::string call, Fail fail) {
  {
    std::lock_guard lock(mutex_);
    under_way_.push_back({.comm = std::move(comm),
                          .end = std::move(end),
                          .call = std::move(call),
                          .fail = std::move(fail),
                          .deadline = std::chrono::steady_clock::now() + patience_.timeout});
    if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  }
  changed_.notify_all();
}

void Watch::Run() {
  // Else the thread's first call would set up the first GPU for it. An error shows at the next
  // call.
  static_cast<void>(cudaSetDevice(ordinal_));
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !under_way_.empty(); });
    if (stop_) return;
    const absl::Status status = Look();
    if (!status.ok()) {
      under_way_.front().fail(status);
      for (const UnderWay& each : under_way_) each.comm->Abort();
      under_way_.clear();
    }
    changed_.wait_for(lock, kLook, [this] { return stop_; });
  }
}

absl::Status Watch::Look() {
  for (auto at = under_way_.begin(); at != under_way_.end();) {
    try {
      if (static_cast<const cuda::GpuMark&>(*at->end).IsReached()) {
        at = under_way_.erase(at);
        continue;
      }
    } catch (const std::exception&) {
      return Annotate(StatusOfException(), at->call);
    }
    LS_RETURN_IF_ERROR(Annotate(at->comm->Check(), at->call));
    if (std::chrono::steady_clock::now() >= at->deadline) {
      const double seconds = std::chrono::duration<double>(patience_.timeout).count();
      return absl::DeadlineExceededError(
          absl::StrCat("no answer within ", FormatDuration(seconds), ": all ranks came to ",
                       at->call, ", but some did not finish it on their GPUs"));
    }
    ++at;
  }
  return under_way_.empty() ? absl::OkStatus() : patience_.world_status();
}

}  // namespace lockstep::nccl
