#include "core/cuda/emulation/block.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/cuda/emulation/fiber.h"
#include "core/cuda/emulation/reads.h"
#include "core/cuda/emulation/shared_memory.h"
#include "core/cuda/emulation/threads.h"
#include "glog/logging.h"

// The image of the program, whose constants kernels may read.
extern "C" const char __executable_start, _end;

namespace lockstep::emulation {
namespace {

constexpr int kLanes = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

// What a thread waits for.
enum class Waits { kNothing, kBlock, kWarp, kIsOver };

struct PendingCopy {
  size_t shared_offset;
  const void* from;
  size_t bytes;
};

struct Thread {
  uint3 index = {};
  int number = 0;  // in its block
  Waits waits = Waits::kNothing;
  Fiber* fiber = nullptr;  // null before it begins
  std::vector<PendingCopy> copies;
};

// What a lane brings to a shuffle or a vote, and takes from it.
struct Exchange {
  uint64_t bits = 0;
  int lane = 0;
  uint64_t result = 0;
};

// What the lanes of a warp do together at present.
struct Warp {
  WarpFunction function = nullptr;
  unsigned mask = 0, arrived = 0;
  void* operands[kLanes] = {};  // null: the lane is not in the mask
  // Side by side: on 32 stacks they would be as many cache misses.
  std::array<Exchange, kLanes> exchanges = {};
  uint32_t epoch = 0;  // counts __syncwarp
};

// Runs a kernel's blocks, on the calling thread. Threads begin on a fiber when their turn comes;
// those that never wait for another share one.
class BlockRunner {
 public:
  std::optional<Fault> Run(const KernelLaunch& launch, int device, const Memory& memory,
                           uint64_t seed);

  Thread& thread() { return *thread_; }
  uint3 block_index() const { return block_index_; }
  const Shape& shape() const { return launch_->shape; }
  void set_name(const char* name) { name_ = name; }
  SharedMemory& shared() { return shared_; }

  unsigned SyncThreads(unsigned bits);
  void TogetherAsWarp(unsigned mask, WarpFunction function, void* operands);
  // The calling thread's; keeps what it holds up to its next use by that thread.
  Exchange& exchange() { return warp().exchanges[static_cast<size_t>(thread_->number % kLanes)]; }
  void SyncWarp(unsigned mask);
  void Check(Access access, const void* address, size_t bytes, size_t alignment);
  void FinishCopies();
  // Ends the kernel.
  [[noreturn]] void Fail(cudaError_t error, const std::string& what);

 private:
  static void RunThread(void* runner);
  void BeginBlock(int64_t block);
  void RunBlock();
  bool RunWarp(size_t warp);
  void Resume(Thread& thread);
  bool PassBarrier();
  Warp& warp() { return warps_[static_cast<size_t>(thread_->number / kLanes)]; }
  void Wait(Waits waits);
  bool IsReadable(const void* address, size_t bytes) const;
  std::string Where() const;

  const KernelLaunch* launch_ = nullptr;
  const Memory* memory_ = nullptr;
  int device_ = 0;
  const char* name_ = nullptr;
  std::mt19937_64 random_;
  std::optional<Fault> fault_;

  uint3 block_index_ = {};
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<size_t> order_;  // of warps
  unsigned barrier_bits_ = 0, barrier_result_ = 0;
  Thread* thread_ = nullptr;  // that runs
  SharedMemory shared_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;

  static constexpr size_t kRanges = 8;
  std::array<Memory::Range, kRanges> ranges_;  // that were accessed last
  size_t next_range_ = 0;
};

// The runner of the kernel that runs on this thread of the host; null: none does.
thread_local BlockRunner* running = nullptr;

std::optional<Fault> BlockRunner::Run(const KernelLaunch& launch, int device, const Memory& memory,
                                      uint64_t seed) {
  launch_ = &launch;
  memory_ = &memory;
  device_ = device;
  name_ = launch.name;
  random_.seed(seed);
  fault_.reset();
  ranges_ = {};
  running = this;
  std::vector<int64_t> blocks(static_cast<size_t>(launch.shape.grid.count()));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::shuffle(blocks.begin(), blocks.end(), random_);
  for (const int64_t block : blocks) {
    BeginBlock(block);
    RunBlock();
    if (fault_.has_value()) break;
  }
  running = nullptr;
  return fault_;
}

void BlockRunner::BeginBlock(int64_t block) {
  const Shape::Extents &grid = launch_->shape.grid, &extents = launch_->shape.block;
  block_index_ = {static_cast<uint32_t>(block % grid.x),
                  static_cast<uint32_t>(block / grid.x % grid.y),
                  static_cast<uint32_t>(block / grid.x / grid.y)};
  shared_.BeginBlock(static_cast<size_t>(launch_->shape.shared_bytes));
  threads_.resize(static_cast<size_t>(extents.count()));
  for (size_t i = 0; i < threads_.size(); ++i) {
    Thread& thread = threads_[i];
    const auto number = static_cast<int64_t>(i);
    thread.index = {static_cast<uint32_t>(number % extents.x),
                    static_cast<uint32_t>(number / extents.x % extents.y),
                    static_cast<uint32_t>(number / extents.x / extents.y)};
    thread.number = static_cast<int>(i);
    thread.waits = Waits::kNothing;
    thread.fiber = nullptr;
    thread.copies.clear();
  }
  warps_.assign((threads_.size() + kLanes - 1) / kLanes, {});
  order_.resize(warps_.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  idle_.clear();
  for (const std::unique_ptr<Fiber>& fiber : fibers_) idle_.push_back(fiber.get());
}

void BlockRunner::RunBlock() {
  for (;;) {
    std::shuffle(order_.begin(), order_.end(), random_);
    bool moved = false;
    for (const size_t warp : order_) {
      while (RunWarp(warp)) moved = true;
      if (fault_.has_value()) return;
    }
    const auto is_over = [](const Thread& thread) { return thread.waits == Waits::kIsOver; };
    if (std::all_of(threads_.begin(), threads_.end(), is_over)) return;
    if (!PassBarrier() && !moved) {
      const auto waits = std::find_if_not(threads_.begin(), threads_.end(), is_over);
      thread_ = &*waits;
      fault_ = {cudaErrorLaunchTimeout,
                absl::StrCat(Where(), ": waits for threads of its ",
                             waits->waits == Waits::kWarp ? "warp" : "block", " that never come")};
      return;
    }
  }
}

// Runs the lanes that wait for nothing; whether there were any.
bool BlockRunner::RunWarp(size_t warp) {
  bool moved = false;
  const size_t end = std::min((warp + 1) * kLanes, threads_.size());
  for (size_t i = warp * kLanes; i < end; ++i) {
    if (threads_[i].waits != Waits::kNothing) continue;
    moved = true;
    Resume(threads_[i]);
    if (fault_.has_value()) return false;
  }
  return moved;
}

void BlockRunner::RunThread(void* runner) {
  static_cast<BlockRunner*>(runner)->launch_->run_thread();
}

void BlockRunner::Resume(Thread& thread) {
  thread_ = &thread;
  if (thread.fiber == nullptr) {
    if (idle_.empty()) {
      fibers_.push_back(std::make_unique<Fiber>());
      idle_.push_back(fibers_.back().get());
    }
    thread.fiber = idle_.back();
    idle_.pop_back();
    thread.fiber->Start(&RunThread, this);
  }
  if (!thread.fiber->Resume()) return;
  if (!thread.copies.empty() && !fault_.has_value()) {
    fault_ = {cudaErrorLaunchFailure,
              absl::StrCat(Where(), ": ends with a copy to shared memory on its way")};
  }
  thread.waits = Waits::kIsOver;
  idle_.push_back(thread.fiber);
}

// Lets threads go on if all that have not ended wait at the barrier; whether it did.
bool BlockRunner::PassBarrier() {
  for (const Thread& thread : threads_) {
    if (thread.waits != Waits::kBlock && thread.waits != Waits::kIsOver) return false;
  }
  for (Thread& thread : threads_) {
    if (thread.waits == Waits::kBlock) thread.waits = Waits::kNothing;
  }
  barrier_result_ = std::exchange(barrier_bits_, 0);
  shared_.PassBarrier();
  return true;
}

void BlockRunner::Wait(Waits waits) {
  Thread& waiting = *thread_;
  waiting.waits = waits;
  waiting.fiber->Yield();
}

unsigned BlockRunner::SyncThreads(unsigned bits) {
  barrier_bits_ |= bits;
  Wait(Waits::kBlock);
  return barrier_result_;
}

void BlockRunner::TogetherAsWarp(unsigned mask, WarpFunction function, void* operands) {
  Warp& together = warp();
  const auto lane = static_cast<unsigned>(thread_->number % kLanes);
  if ((mask >> lane & 1) == 0) Fail(cudaErrorLaunchFailure, "is not in the mask that it passes");
  if (together.arrived == 0) {
    together.function = function;
    together.mask = mask;
    if (mask != kAllLanes)
      std::fill(std::begin(together.operands), std::end(together.operands), nullptr);
  } else if (together.function != function || together.mask != mask) {
    Fail(cudaErrorLaunchFailure, "does something else than the other lanes of its warp");
  }
  together.arrived |= 1u << lane;
  together.operands[lane] = operands;
  if (together.arrived != mask) return Wait(Waits::kWarp);
  function(together.operands);
  together.arrived = 0;
  const size_t first = static_cast<size_t>(thread_->number / kLanes) * kLanes;
  for (size_t i = 0; i < kLanes; ++i) {
    if ((mask >> i & 1) != 0) threads_[first + i].waits = Waits::kNothing;
  }
}

void BlockRunner::SyncWarp(unsigned mask) {
  Warp& own = warp();
  // The last to come counts for all.
  if ((own.arrived | 1u << thread_->number % kLanes) == mask) ++own.epoch;
  TogetherAsWarp(
      mask, [](void* const(&)[kLanes]) {}, nullptr);
}

bool BlockRunner::IsReadable(const void* address, size_t bytes) const {
  const auto within = [&](const void* begin, size_t size) {
    const uintptr_t offset =
        reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(begin);
    return offset < size && offset + bytes <= size;
  };
  return within(launch_->arguments.get(), launch_->argument_bytes) ||
         within(&launch_->run_thread, sizeof(launch_->run_thread)) ||
         within(&__executable_start, static_cast<size_t>(&_end - &__executable_start));
}

void BlockRunner::Check(Access access, const void* address, size_t bytes, size_t alignment) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  // A fiber's own stack: local variables.
  if (begin - reinterpret_cast<uintptr_t>(thread_->fiber->stack()) < Fiber::kStackBytes) return;
  const char* const verb = access == Access::kRead ? "reads " : "writes ";
  if ((begin & (alignment - 1)) != 0) {
    Fail(cudaErrorMisalignedAddress,
         absl::StrCat(verb, bytes, " bytes at ", absl::Hex(begin), ", no multiple of ", alignment));
  }
  if (shared_.Contains(address)) {
    const SharedMemory::Accessor accessor = {.thread = thread_->number, .warp_epoch = warp().epoch};
    const size_t offset = shared_.Offset(address);
    const std::string problem = access == Access::kRead ? shared_.Read(offset, bytes, accessor)
                                                        : shared_.Write(offset, bytes, accessor);
    if (!problem.empty()) Fail(cudaErrorIllegalAddress, absl::StrCat(verb, problem));
    return;
  }
  if (access == Access::kRead) ReadCounter::Note(begin, bytes);
  const uint64_t generation = memory_->generation();
  for (const Memory::Range& range : ranges_) {
    if (range.generation == generation && begin >= range.begin && begin + bytes <= range.end) {
      return;
    }
  }
  if (access == Access::kRead && IsReadable(address, bytes)) return;
  const std::string problem = memory_->Judge(device_, address, bytes);
  if (!problem.empty()) {
    Fail(cudaErrorIllegalAddress, absl::StrCat(verb, bytes, " bytes ", problem));
  }
  ranges_[next_range_++ % kRanges] = memory_->RangeAround(device_, address);
}

void BlockRunner::FinishCopies() {
  for (const PendingCopy& copy : thread_->copies) {
    unsigned char* const to = shared_.begin() + copy.shared_offset;
    if (copy.from == nullptr) {
      std::memset(to, 0, copy.bytes);
    } else {
      std::memcpy(to, copy.from, copy.bytes);
    }
  }
  thread_->copies.clear();
}

std::string BlockRunner::Where() const {
  const auto place = [](const uint3& index) {
    return absl::StrCat("(", index.x, ", ", index.y, ", ", index.z, ")");
  };
  return absl::StrCat("GPU ", device_, ": ", name_, ": thread ", place(thread_->index),
                      " of block ", place(block_index_));
}

void BlockRunner::Fail(cudaError_t error, const std::string& what) {
  fault_ = {error, absl::StrCat(Where(), ": ", what)};
  thread_->fiber->Yield();
  std::abort();  // nobody resumes it
}

}  // namespace

std::optional<Fault> RunKernel(const KernelLaunch& launch, int device, const Memory& memory,
                               uint64_t seed) {
  static thread_local BlockRunner runner;
  return runner.Run(launch, device, memory, seed);
}

void EnterKernel(const char* name) { running->set_name(name); }
uint3 ThreadIndex() { return running->thread().index; }
uint3 BlockIndex() { return running->block_index(); }
dim3 BlockExtents() {
  const Shape::Extents& block = running->shape().block;
  return {static_cast<uint32_t>(block.x), static_cast<uint32_t>(block.y),
          static_cast<uint32_t>(block.z)};
}
dim3 GridExtents() {
  const Shape::Extents& grid = running->shape().grid;
  return {static_cast<uint32_t>(grid.x), static_cast<uint32_t>(grid.y),
          static_cast<uint32_t>(grid.z)};
}
int Lane() { return running->thread().number % kLanes; }

unsigned SyncThreads(unsigned bits) { return running->SyncThreads(bits); }
void SyncWarp(unsigned mask) { running->SyncWarp(mask); }
void TogetherAsWarp(WarpFunction f, void* operands) {
  running->TogetherAsWarp(kAllLanes, f, operands);
}

unsigned Ballot(unsigned mask, bool predicate) {
  Exchange& own = running->exchange();
  own.bits = predicate;
  running->TogetherAsWarp(
      mask,
      [](void* const(&lanes)[kLanes]) {
        unsigned votes = 0;
        for (unsigned i = 0; i < kLanes; ++i) {
          const auto* const lane = static_cast<const Exchange*>(lanes[i]);
          if (lane != nullptr && lane->bits != 0) votes |= 1u << i;
        }
        for (void* const lane : lanes) {
          if (lane != nullptr) static_cast<Exchange*>(lane)->result = votes;
        }
      },
      &own);
  return static_cast<unsigned>(own.result);
}

uint64_t ShuffleBits(unsigned mask, uint64_t bits, int lane) {
  if ((mask >> lane & 1) == 0) {
    running->Fail(cudaErrorLaunchFailure,
                  absl::StrCat("shuffles with lane ", lane, ", which is not in the mask"));
  }
  Exchange& own = running->exchange();
  own.bits = bits;
  own.lane = lane;
  running->TogetherAsWarp(
      mask,
      [](void* const(&lanes)[kLanes]) {
        for (void* const each : lanes) {
          if (each == nullptr) continue;
          auto& to = *static_cast<Exchange*>(each);
          to.result = static_cast<const Exchange*>(lanes[to.lane])->bits;
        }
      },
      &own);
  return own.result;
}

void* StaticSharedBytes(const void* key, size_t bytes, size_t alignment) {
  void* const variable = running->shared().Variable(key, bytes, alignment);
  if (variable == nullptr) {
    running->Fail(cudaErrorLaunchFailure, "has more shared memory than a block can have");
  }
  return variable;
}

void* DynamicSharedBytes(size_t /*alignment*/) { return running->shared().dynamic(); }

size_t SharedOffset(const void* shared) {
  if (!running->shared().Contains(shared)) {
    running->Fail(cudaErrorInvalidAddressSpace, "takes an address for one of shared memory");
  }
  return running->shared().Offset(shared);
}

unsigned char* SharedAt(size_t offset) { return running->shared().begin() + offset; }

unsigned long long AtomicAdd(unsigned long long* sum, unsigned long long value) {
  CheckAccess(Access::kWrite, sum, sizeof(*sum), sizeof(*sum));
  return std::atomic_ref(*sum).fetch_add(value);
}

std::atomic<ReadCounter*> ReadCounter::current = nullptr;

ReadCounter::ReadCounter(const void* begin, size_t bytes)
    : begin_(reinterpret_cast<uintptr_t>(begin)), range_(bytes) {
  CHECK(current.exchange(this) == nullptr) << "one counter at a time";
}

ReadCounter::~ReadCounter() { current = nullptr; }

void CheckAccess(Access access, const void* address, size_t bytes, size_t alignment) {
  if (running != nullptr) running->Check(access, address, bytes, alignment);
}

void BeginCopy(size_t shared_offset, const void* from, size_t bytes) {
  std::memset(SharedAt(shared_offset), 0xff, bytes);
  running->thread().copies.push_back({shared_offset, from, bytes});
}

void FinishCopies() { running->FinishCopies(); }

int64_t SharedBytesOfBlock() {
  constexpr int64_t kOfH100 = 227 << 10;
  const char* const bytes = std::getenv("LOCKSTEP_EMULATED_SHARED_BYTES");
  return bytes == nullptr ? kOfH100 : std::strtoll(bytes, nullptr, 10);
}

}  // namespace lockstep::emulation
