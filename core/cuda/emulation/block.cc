#include "core/cuda/emulation/block.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
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

constexpr uint32_t kLanes = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

struct PendingCopy {
  size_t shared_offset;
  const void* from;
  size_t bytes;
};

struct Thread {
  uint3 index = {};
  uint32_t number = 0;     // in its block
  Fiber* fiber = nullptr;  // null before it begins
  std::vector<PendingCopy> copies;
};

// What a lane brings to a shuffle or a vote, and takes from it.
struct Exchange {
  uint64_t bits = 0;
  int lane = 0;
  uint64_t result = 0;
};

// The state of a warp's lanes, as sets with a bit for each lane, and what they do together.
struct Warp {
  unsigned all = 0;         // lanes that there are
  unsigned ready = 0;       // that wait for nothing
  unsigned begun = 0;       // that have a fiber
  unsigned at_barrier = 0;  // that wait for the block
  unsigned over = 0;        // that have ended
  // All other lanes wait for lanes of their warp.

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
  Exchange& exchange() { return warp().exchanges[thread_->number % kLanes]; }
  void SyncWarp(unsigned mask);
  void Check(Access access, const void* address, size_t bytes, size_t alignment);
  void FinishCopies();
  // End the kernel. Messages are put together out of line, so that the callers stay short.
  [[noreturn, gnu::cold, gnu::noinline]] void Fail(cudaError_t error, const std::string& what);
  [[noreturn, gnu::cold, gnu::noinline]] void FailToShuffle(int lane);
  [[noreturn, gnu::cold, gnu::noinline]] void FailTogether(const char* what);

 private:
  static void RunThreads(void* runner);
  void BeginBlock(int64_t block);
  void RunBlock();
  bool RunWarp(size_t number);
  void Resume(Thread& thread);
  bool IsOver() const;
  bool PassBarrier();
  Warp& warp() { return warps_[thread_->number / kLanes]; }
  unsigned LaneBit() const { return 1u << thread_->number % kLanes; }
  void Wait(Warp& own);
  // The parts of Check for shared memory, and for memory outside the ranges accessed last.
  [[gnu::noinline]] void CheckShared(Access access, const void* address, size_t bytes);
  [[gnu::noinline]] void Judge(Access access, const void* address, size_t bytes);
  [[noreturn, gnu::cold, gnu::noinline]] void FailUnaligned(Access access, const void* address,
                                                            size_t bytes, size_t alignment);
  [[noreturn, gnu::cold, gnu::noinline]] void FailShared(Access access, size_t offset, size_t bytes,
                                                         const SharedMemory::Accessor& accessor);
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
  uint64_t ranges_generation_ = 0;  // of all of them
};

const char* Verb(Access access) { return access == Access::kRead ? "reads " : "writes "; }

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
  ranges_generation_ = 0;
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
    thread.number = static_cast<uint32_t>(i);
    thread.fiber = nullptr;
    thread.copies.clear();
  }
  warps_.assign((threads_.size() + kLanes - 1) / kLanes, {.all = kAllLanes, .ready = kAllLanes});
  if (const size_t rest = threads_.size() % kLanes; rest != 0) {
    warps_.back().all = warps_.back().ready = (1u << rest) - 1;
  }
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
      if (RunWarp(warp)) moved = true;
      if (fault_.has_value()) return;
    }
    if (IsOver()) return;
    if (!PassBarrier() && !moved) {
      const auto waits = std::find_if(warps_.begin(), warps_.end(),
                                      [](const Warp& warp) { return warp.over != warp.all; });
      const auto lane = static_cast<size_t>(std::countr_zero(waits->all & ~waits->over));
      thread_ = &threads_[static_cast<size_t>(waits - warps_.begin()) * kLanes + lane];
      fault_ = {cudaErrorLaunchTimeout,
                absl::StrCat(Where(), ": waits for threads of its ",
                             (waits->at_barrier & LaneBit()) == 0 ? "warp" : "block",
                             " that never come")};
      return;
    }
  }
}

// Runs the lanes that wait for nothing until there are none; whether there were any.
bool BlockRunner::RunWarp(size_t number) {
  const Warp& warp = warps_[number];
  if (warp.ready == 0) return false;
  while (warp.ready != 0 && !fault_.has_value()) {
    Resume(threads_[number * kLanes + static_cast<size_t>(std::countr_zero(warp.ready))]);
  }
  return true;
}

// Runs the thread that has been given a fiber, and then, on the same one, others of the warp that
// have not begun.
void BlockRunner::RunThreads(void* of_runner) {
  auto& runner = *static_cast<BlockRunner*>(of_runner);
  Warp& warp = runner.warp();
  const size_t first = runner.thread_->number / kLanes * kLanes;
  Fiber* const fiber = runner.thread_->fiber;
  for (;;) {
    warp.begun |= runner.LaneBit();
    runner.launch_->run_thread();
    if (!runner.thread_->copies.empty()) {
      runner.fault_ = {
          cudaErrorLaunchFailure,
          absl::StrCat(runner.Where(), ": ends with a copy to shared memory on its way")};
      return;
    }
    warp.ready &= ~runner.LaneBit();
    warp.over |= runner.LaneBit();
    const unsigned next = warp.ready & ~warp.begun;
    if (next == 0) break;
    runner.thread_ = &runner.threads_[first + static_cast<size_t>(std::countr_zero(next))];
    runner.thread_->fiber = fiber;
  }
  // The fiber yields next, before anybody can begin another thread on it.
  runner.idle_.push_back(fiber);
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
    thread.fiber->Start(&RunThreads, this);
  }
  thread.fiber->Resume();
}

bool BlockRunner::IsOver() const {
  return std::all_of(warps_.begin(), warps_.end(),
                     [](const Warp& warp) { return warp.over == warp.all; });
}

// Lets threads go on if all that have not ended wait at the barrier; whether it did.
bool BlockRunner::PassBarrier() {
  for (const Warp& warp : warps_) {
    if ((warp.at_barrier | warp.over) != warp.all) return false;
  }
  for (Warp& warp : warps_) warp.ready = std::exchange(warp.at_barrier, 0);
  barrier_result_ = std::exchange(barrier_bits_, 0);
  shared_.PassBarrier();
  return true;
}

// Lets others run until the calling thread, which is no longer ready, is ready again. Switches
// straight to the next ready lane of the warp where there is one, else to the scheduler.
void BlockRunner::Wait(Warp& own) {
  Thread& waiting = *thread_;
  const unsigned others = own.ready & own.begun;
  if (others == 0) return waiting.fiber->Yield();
  const uint32_t lane = waiting.number % kLanes;
  const unsigned later = others >> lane << lane;
  const int next = std::countr_zero(later != 0 ? later : others);
  thread_ = &waiting - lane + next;
  waiting.fiber->YieldTo(*thread_->fiber);
}

unsigned BlockRunner::SyncThreads(unsigned bits) {
  barrier_bits_ |= bits;
  Warp& own = warp();
  own.ready &= ~LaneBit();
  own.at_barrier |= LaneBit();
  Wait(own);
  return barrier_result_;
}

void BlockRunner::TogetherAsWarp(unsigned mask, WarpFunction function, void* operands) {
  Warp& together = warp();
  const uint32_t lane = thread_->number % kLanes;
  if ((mask >> lane & 1) == 0) FailTogether("is not in the mask that it passes");
  if (together.arrived == 0) {
    together.function = function;
    together.mask = mask;
    if (mask != kAllLanes)
      std::fill(std::begin(together.operands), std::end(together.operands), nullptr);
  } else if (together.function != function || together.mask != mask) {
    FailTogether("does something else than the other lanes of its warp");
  }
  together.arrived |= 1u << lane;
  together.operands[lane] = operands;
  if (together.arrived != mask) {
    together.ready &= ~(1u << lane);
    return Wait(together);
  }
  function(together.operands);
  together.arrived = 0;
  together.ready |= mask;
}

void BlockRunner::SyncWarp(unsigned mask) {
  Warp& own = warp();
  // The last to come counts for all.
  if ((own.arrived | LaneBit()) == mask) ++own.epoch;
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

inline void BlockRunner::Check(Access access, const void* address, size_t bytes, size_t alignment) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  // A fiber's own stack: local variables.
  if (begin - reinterpret_cast<uintptr_t>(thread_->fiber->stack()) < Fiber::kStackBytes) return;
  if ((begin & (alignment - 1)) != 0) {
    FailUnaligned(access, address, bytes, alignment);
  }
  if (shared_.Contains(address)) return CheckShared(access, address, bytes);
  if (access == Access::kRead) ReadCounter::Note(begin, bytes);
  if (ranges_generation_ == memory_->generation()) {
    for (const Memory::Range& range : ranges_) {
      if (begin >= range.begin && begin + bytes <= range.end) return;
    }
  }
  Judge(access, address, bytes);
}

void BlockRunner::CheckShared(Access access, const void* address, size_t bytes) {
  const SharedMemory::Accessor accessor = {.thread = thread_->number, .warp_epoch = warp().epoch};
  const size_t offset = shared_.Offset(address);
  const bool is_write = access == Access::kWrite;
  if (is_write ? shared_.Write(offset, bytes, accessor) : shared_.Read(offset, bytes, accessor)) {
    return;
  }
  FailShared(access, offset, bytes, accessor);
}

void BlockRunner::FailUnaligned(Access access, const void* address, size_t bytes,
                                size_t alignment) {
  Fail(cudaErrorMisalignedAddress, absl::StrCat(Verb(access), bytes, " bytes at ",
                                                absl::Hex(reinterpret_cast<uintptr_t>(address)),
                                                ", no multiple of ", alignment));
}

void BlockRunner::FailShared(Access access, size_t offset, size_t bytes,
                             const SharedMemory::Accessor& accessor) {
  const std::string why = shared_.WhyNot(access == Access::kWrite, offset, bytes, accessor);
  Fail(cudaErrorIllegalAddress, absl::StrCat(Verb(access), why));
}

void BlockRunner::Judge(Access access, const void* address, size_t bytes) {
  if (access == Access::kRead && IsReadable(address, bytes)) return;
  const std::string problem = memory_->Judge(device_, address, bytes);
  if (!problem.empty()) {
    Fail(cudaErrorIllegalAddress, absl::StrCat(Verb(access), bytes, " bytes ", problem));
  }
  const Memory::Range range = memory_->RangeAround(device_, address);
  if (range.generation == 0) return;  // memory of the host, which is judged each time
  if (range.generation != ranges_generation_) {
    ranges_ = {};
    ranges_generation_ = range.generation;
  }
  ranges_[next_range_++ % kRanges] = range;
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

void BlockRunner::FailTogether(const char* what) { Fail(cudaErrorLaunchFailure, what); }

void BlockRunner::FailToShuffle(int lane) {
  Fail(cudaErrorLaunchFailure,
       absl::StrCat("shuffles with lane ", lane, ", which is not in the mask"));
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
int Lane() { return static_cast<int>(running->thread().number % kLanes); }

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
  if ((mask >> lane & 1) == 0) running->FailToShuffle(lane);
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
