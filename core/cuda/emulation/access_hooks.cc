// What the compiler calls before each access to memory that a kernel makes: kernels are compiled
// with -fsanitize=thread, whose calls have these names, and no ThreadSanitizer is linked. Code of
// the host that is compiled with them is let through.

#include <cstddef>
#include <cstdint>

#include "core/cuda/emulation/threads.h"

using lockstep::emulation::Access;
using lockstep::emulation::CheckAccess;

// NOLINTBEGIN(bugprone-reserved-identifier)
#define LS_HOOKS(bytes)                                                                           \
  void __tsan_read##bytes(void* address) { CheckAccess(Access::kRead, address, bytes, bytes); }   \
  void __tsan_write##bytes(void* address) { CheckAccess(Access::kWrite, address, bytes, bytes); } \
  void __tsan_unaligned_read##bytes(void* address) {                                              \
    CheckAccess(Access::kRead, address, bytes, 1);                                                \
  }                                                                                               \
  void __tsan_unaligned_write##bytes(void* address) {                                             \
    CheckAccess(Access::kWrite, address, bytes, 1);                                               \
  }

extern "C" {

void __tsan_init() {}
LS_HOOKS(1)
LS_HOOKS(2)
LS_HOOKS(4)
LS_HOOKS(8)
LS_HOOKS(16)
void __tsan_read_range(void* address, size_t bytes) {
  if (bytes > 0) CheckAccess(Access::kRead, address, bytes, 1);
}
void __tsan_write_range(void* address, size_t bytes) {
  if (bytes > 0) CheckAccess(Access::kWrite, address, bytes, 1);
}
void __tsan_vptr_update(void**, void*) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

// Counters of shared pointers, say, in inlined code of the host.
uint32_t __tsan_atomic32_fetch_add(volatile void* value, uint32_t add, int) {
  return __atomic_fetch_add(static_cast<volatile uint32_t*>(value), add, __ATOMIC_SEQ_CST);
}
uint32_t __tsan_atomic32_load(const volatile void* value, int) {
  return __atomic_load_n(static_cast<const volatile uint32_t*>(value), __ATOMIC_SEQ_CST);
}
uint8_t __tsan_atomic8_load(const volatile void* value, int) {
  return __atomic_load_n(static_cast<const volatile uint8_t*>(value), __ATOMIC_SEQ_CST);
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)
