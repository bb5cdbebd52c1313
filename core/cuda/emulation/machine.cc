#include "core/cuda/emulation/machine.h"

#include <algorithm>
#include <cstdlib>

#include "glog/logging.h"

namespace lockstep::emulation {
namespace {

// What is queued at most before it is worked off.
constexpr size_t kMostQueued = 512;
// One in so many queued operations lets GPUs move on at once.
constexpr uint64_t kEager = 8;
constexpr uint64_t kMostSteps = 4;
constexpr uint64_t kAllPeers = 1 << 20;

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

}  // namespace

Machine& Machine::Get() {
  // Never destroyed: threads may use it up to the end of the process.
  static Machine& machine = *new Machine(
      static_cast<int>(FromEnvironment("LOCKSTEP_EMULATED_GPUS", 4)),
      static_cast<int>(FromEnvironment("LOCKSTEP_EMULATED_PEERS", kAllPeers)),
      FromEnvironment("LOCKSTEP_EMULATED_SEED", FromEnvironment("TEST_RUN_NUMBER", 1)));
  return machine;
}

Machine::Machine(int devices, int island, uint64_t seed)
    : devices_(devices),
      island_(std::max(island, 1)),
      memory_(devices),
      random_(seed),
      errors_(static_cast<size_t>(devices), cudaSuccess) {}

cudaError_t Machine::error(int device) {
  Lock lock(mutex_);
  return errors_[static_cast<size_t>(device)];
}

std::shared_ptr<Stream> Machine::NewStream(int device) {
  Lock lock(mutex_);
  streams_.push_back(std::make_shared<Stream>());
  streams_.back()->device = device;
  return streams_.back();
}

void Machine::Forget(const std::shared_ptr<Stream>& stream) {
  Lock lock(mutex_);
  // An end of its own, where the stream leaves the list.
  stream->queue.push_back({.name = "cudaStreamDestroy", .run = [this, stream = stream.get()] {
                             Lock inner(mutex_);
                             std::erase_if(streams_,
                                           [&](const auto& each) { return each.get() == stream; });
                             return std::nullopt;
                           }});
  ++stream->queued;
  ++queued_;
}

void Machine::Queue(const std::shared_ptr<Stream>& stream, Operation operation) {
  Lock lock(mutex_);
  stream->queue.push_back(std::move(operation));
  ++stream->queued;
  ++queued_;
  changed_.notify_all();
  if (random_() % kEager == 0) {
    for (uint64_t left = random_() % kMostSteps; left > 0 && Step(lock); --left) {
    }
  }
  while (queued_ > kMostQueued && Step(lock)) {
  }
}

Mark Machine::MarkOf(const std::shared_ptr<Stream>& stream) {
  Lock lock(mutex_);
  return {stream, stream->queued};
}

void Machine::Await(const Mark& mark) {
  Lock lock(mutex_);
  RunUntil(lock, [&] { return mark.IsReached(); });
}

bool Machine::Poll(const Mark& mark) {
  Lock lock(mutex_);
  for (uint64_t left = 1 + random_() % kMostSteps; left > 0 && !mark.IsReached(); --left) {
    if (!Step(lock)) break;
  }
  return mark.IsReached();
}

void Machine::AwaitDevice(int device) {
  Lock lock(mutex_);
  RunUntil(lock, [&] {
    for (const std::shared_ptr<Stream>& stream : streams_) {
      if (stream->device == device && stream->done < stream->queued) return false;
    }
    return true;
  });
}

uint64_t Machine::Random() {
  Lock lock(mutex_);
  return random_();
}

void Machine::Change(const std::function<void()>& change) {
  Lock lock(mutex_);
  change();
  changed_.notify_all();
}

void Machine::Fail(int device, const Fault& fault) {
  Lock lock(mutex_);
  FailLocked(device, fault);
}

void Machine::FailLocked(int device, const Fault& fault) {
  LOG(ERROR) << "emulated " << fault.message;
  cudaError_t& error = errors_[static_cast<size_t>(device)];
  if (error == cudaSuccess) error = fault.error;
  changed_.notify_all();
}

void Machine::RunUntil(Lock& lock, const std::function<bool()>& is_done) {
  while (!is_done()) {
    if (!Step(lock)) changed_.wait(lock);
  }
}

bool Machine::Step(Lock& lock) {
  std::vector<std::shared_ptr<Stream>> ready;
  for (const std::shared_ptr<Stream>& stream : streams_) {
    if (stream->is_running || stream->queue.empty()) continue;
    const Operation& next = stream->queue.front();
    const bool is_dead = errors_[static_cast<size_t>(stream->device)] != cudaSuccess;
    if (is_dead || next.is_ready == nullptr || next.is_ready()) ready.push_back(stream);
  }
  if (ready.empty()) return false;
  const std::shared_ptr<Stream> stream = ready[random_() % ready.size()];
  const Operation operation = std::move(stream->queue.front());
  stream->queue.pop_front();
  // A GPU that has failed does nothing any more.
  if (errors_[static_cast<size_t>(stream->device)] == cudaSuccess) {
    stream->is_running = true;
    lock.unlock();
    const std::optional<Fault> fault = operation.run();
    lock.lock();
    stream->is_running = false;
    if (fault.has_value()) FailLocked(stream->device, *fault);
  }
  ++stream->done;
  --queued_;
  changed_.notify_all();
  return true;
}

}  // namespace lockstep::emulation
