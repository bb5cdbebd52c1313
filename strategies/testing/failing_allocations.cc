#include "strategies/testing/failing_allocations.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace lockstep {
namespace {

// The functions below have no other place for what they are told.
std::atomic<int64_t*> counter = nullptr;
std::atomic<int64_t> failing = 0;

bool Fails() {
  int64_t* count = counter.load(std::memory_order_acquire);
  return count != nullptr && __atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST) == failing.load();
}

void* New(size_t size) { return Fails() ? nullptr : std::malloc(size == 0 ? 1 : size); }

void* New(size_t size, std::align_val_t alignment) {
  void* memory = nullptr;
  if (Fails()) return nullptr;
  return posix_memalign(&memory, static_cast<size_t>(alignment), size == 0 ? 1 : size) == 0
             ? memory
             : nullptr;
}

void* OrThrow(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void FailAllocation(int64_t at, int64_t* count) {
  failing = at;
  counter.store(count, std::memory_order_release);
}

}  // namespace lockstep

// The library's functions of these names, for the whole program.
void* operator new(size_t size) { return lockstep::OrThrow(lockstep::New(size)); }
void* operator new[](size_t size) { return lockstep::OrThrow(lockstep::New(size)); }
void* operator new(size_t size, std::align_val_t alignment) {
  return lockstep::OrThrow(lockstep::New(size, alignment));
}
void* operator new[](size_t size, std::align_val_t alignment) {
  return lockstep::OrThrow(lockstep::New(size, alignment));
}
void* operator new(size_t size, const std::nothrow_t&) noexcept { return lockstep::New(size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return lockstep::New(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

extern "C" void* aligned_alloc(size_t alignment, size_t size) noexcept {
  void* memory = nullptr;
  if (lockstep::Fails()) return nullptr;
  return posix_memalign(&memory, alignment, size) == 0 ? memory : nullptr;
}
