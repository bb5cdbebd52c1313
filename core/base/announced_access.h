#pragma once

#include <cstdint>

namespace lockstep {

// Tell ThreadSanitizer that the calling thread reads or writes `bytes` bytes of memory from `begin`
// on, for code that is compiled without instrumentation (--config=tsan, .bazelrc). In other builds
// they do nothing. `begin` may be null where `bytes` is 0.
void AnnounceRead(const void* begin, int64_t bytes);
void AnnounceWrite(void* begin, int64_t bytes);

}  // namespace lockstep
