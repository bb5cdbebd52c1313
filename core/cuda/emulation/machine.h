#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/cuda/emulation/block.h"
#include "core/cuda/emulation/memory.h"

namespace lockstep::emulation {

// Work for a stream.
struct Operation {
  std::string name;
  // Runs it, by a thread of the host that waits for the GPU.
  std::function<std::optional<Fault>()> run;
  // Whether it can begin; null: as soon as what is before it on its stream has ended. Called under
  // the machine's lock.
  std::function<bool()> is_ready = nullptr;
};

struct Stream {
  int device = 0;
  std::deque<Operation> queue;
  bool is_running = false;
  uint64_t queued = 0, done = 0;
  // What the work of libraries is said to have taken so far; kernels and copies take no time. Used
  // by the stream's operations alone, of which one runs at a time.
  uint64_t nanos = 0;
};

// The end of what was queued on a stream up to a point; before it is recorded, nothing.
struct Mark {
  std::shared_ptr<Stream> stream;
  uint64_t position = 0;

  bool IsReached() const { return stream == nullptr || stream->done >= position; }
};

// All emulated GPUs of the process, their streams and what is queued. Nothing runs by itself:
// threads that wait for a GPU run what is queued, in a random order among the streams, so that an
// order that no event asks for does not hold. What is queued starts at once only now and then.
class Machine {
 public:
  // Made by the first call, from the environment: LOCKSTEP_EMULATED_GPUS, 4 unless it is set;
  // LOCKSTEP_EMULATED_PEERS, how many neighbours reach each other's memory, all unless it is set;
  // and LOCKSTEP_EMULATED_SEED, which chooses the order, else the number of the test's run, of
  // those that --runs_per_test asks Bazel for. The runtime of CUDA is one for a process, and so is
  // its stand-in.
  static Machine& Get();

  int devices() const { return devices_; }
  // Whether the two GPUs can reach each other's memory.
  bool ArePeers(int device, int peer) const {
    return device != peer && device / island_ == peer / island_;
  }
  Memory& memory() { return memory_; }

  // The error that ended the GPU; success as long as there is none.
  cudaError_t error(int device);

  std::shared_ptr<Stream> NewStream(int device);
  // What is queued still runs.
  void Forget(const std::shared_ptr<Stream>& stream);

  void Queue(const std::shared_ptr<Stream>& stream, Operation operation);
  // The end of what is queued on the stream now.
  Mark MarkOf(const std::shared_ptr<Stream>& stream);

  void Await(const Mark& mark);
  // Whether it is reached; GPUs move on a little.
  bool Poll(const Mark& mark);
  // Waits for all that is queued on the GPU.
  void AwaitDevice(int device);

  // A number for what else is to be random.
  uint64_t Random();
  // Ends the GPU with an error, which is logged.
  void Fail(int device, const Fault& fault);

  // Calls `change` under the machine's lock, after which operations may have become ready.
  void Change(const std::function<void()>& change);

 private:
  using Lock = std::unique_lock<std::mutex>;

  Machine(int devices, int island, uint64_t seed);

  void RunUntil(Lock& lock, const std::function<bool()>& is_done);
  // Runs one operation, if one is ready; releases the lock meanwhile.
  bool Step(Lock& lock);
  void FailLocked(int device, const Fault& fault);

  const int devices_;
  const int island_;  // GPUs that are peers
  Memory memory_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::mt19937_64 random_;
  std::vector<cudaError_t> errors_;  // of each GPU
  std::list<std::shared_ptr<Stream>> streams_;
  size_t queued_ = 0;  // operations
};

}  // namespace lockstep::emulation
