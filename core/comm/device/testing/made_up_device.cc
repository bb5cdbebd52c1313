#include "core/comm/device/testing/made_up_device.h"

#include <algorithm>  // std::swap_ranges
#include <cstddef>
#include <cstdlib>  // std::free
#include <cstring>  // std::memcpy
#include <future>
#include <utility>

#include "core/comm/reduce.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

class MadeUpMark final : public DeviceMark {
 public:
  void Reach() const {
    std::lock_guard lock(mutex_);
    reached_ = true;
    changed_.notify_all();
  }
  void Await() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return reached_; });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable bool reached_ = false;
};

}  // namespace

MadeUpStream::~MadeUpStream() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  queued_.notify_one();
  thread_.join();
}

void MadeUpStream::Queue(std::function<void()> work) {
  {
    std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  queued_.notify_one();
}

void MadeUpStream::Finish() {
  std::promise<void> done;
  Queue([&done] { done.set_value(); });
  done.get_future().wait();
}

void MadeUpStream::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    queued_.wait(lock, [this] { return stop_ || !work_.empty(); });
    if (work_.empty()) return;
    const std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    work();
    lock.lock();
  }
}

// The mark is kept by those who wait for it.
void MadeUpStream::Await(const DeviceMark& mark) {
  const auto kept = std::static_pointer_cast<const MadeUpMark>(mark.shared_from_this());
  Queue([kept] { kept->Await(); });
}

DeviceMarkPtr MadeUpStream::Mark() {
  const auto mark = std::make_shared<const MadeUpMark>();
  Queue([mark] { mark->Reach(); });
  return mark;
}

void MadeUpStream::Copy(std::byte* to, const std::byte* from, int64_t bytes) {
  Queue([=] { std::memcpy(to, from, static_cast<size_t>(bytes)); });
}

void MadeUpStream::Reduce(DType dtype, ReduceOp op, absl::Span<const std::byte* const> inputs,
                          absl::Span<std::byte* const> outputs, int64_t begin, int64_t end) {
  Queue([=, from = std::vector<const std::byte*>(inputs.begin(), inputs.end()),
         to = std::vector<std::byte*>(outputs.begin(), outputs.end())] {
    ReduceByTree(dtype, op, from, to, begin, end);
  });
}

void MadeUpStream::Swap(std::byte* one, std::byte* other, int64_t bytes) {
  Queue([=] { std::swap_ranges(one, one + bytes, other); });
}

void MadeUpMemory::Write(const Bytes& bytes, const Tensor& tensor) {
  computes_.Queue([bytes, to = tensor.raw()] { std::memcpy(to, bytes.data(), bytes.size()); });
}

Bytes MadeUpMemory::Read(const Tensor& tensor) {
  Bytes bytes(static_cast<size_t>(tensor.bytes()));
  if (bytes.empty()) return bytes;
  computes_.Queue([&bytes, from = tensor.raw()] { std::memcpy(bytes.data(), from, bytes.size()); });
  computes_.Finish();
  return bytes;
}

void* MadeUpMemory::StreamAllocator::AllocateBlock(int64_t bytes) {
  return std::aligned_alloc(kAlignment, static_cast<size_t>(bytes));
}

void MadeUpMemory::StreamAllocator::FreeBlock(void* block, int64_t bytes) {
  computes_.Queue([=] {
    std::memset(block, 0xee, static_cast<size_t>(bytes));
    std::free(block);
  });
}

void MadeUpDevice::ComputeAwaits(const DeviceMark& mark) {
  computes_.Await(mark);
  if (where_ == Computes::kInRanksThreads) computes_.Finish();
}

absl::StatusOr<std::unique_ptr<DeviceRoutes>> MadeUpDevice::Connect(Communicator& group) {
  return connector_.Connect(group.group(), [] { return std::make_unique<MadeUpStream>(); });
}

}  // namespace lockstep
