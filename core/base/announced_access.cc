#include "core/base/announced_access.h"

#ifdef __SANITIZE_THREAD__
// As GCC's and LLVM's runtimes export them; no header has them.
extern "C" {
void __tsan_read_range(void* begin, unsigned long bytes);   // NOLINT
void __tsan_write_range(void* begin, unsigned long bytes);  // NOLINT
}
#endif

namespace lockstep {

#ifdef __SANITIZE_THREAD__

void AnnounceRead(const void* begin, int64_t bytes) {
  __tsan_read_range(const_cast<void*>(begin), static_cast<unsigned long>(bytes));
}

void AnnounceWrite(void* begin, int64_t bytes) {
  __tsan_write_range(begin, static_cast<unsigned long>(bytes));
}

#else

void AnnounceRead(const void* /*begin*/, int64_t /*bytes*/) {}
void AnnounceWrite(void* /*begin*/, int64_t /*bytes*/) {}

#endif

}  // namespace lockstep
