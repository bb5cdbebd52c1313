#pragma once

#include <cstdint>

namespace lockstep {

// Tell ThreadSanitizer that the calling thread reads or writes `bytes` of memory from `begin` on,
// where code does so that is compiled without its instrumentation, or was (--config=tsan,
// .bazelrc). In a build for anything else they do nothing. Nothing may stand at `begin` for 0
// bytes.
void AnnounceRead(const void* begin, int64_t bytes);
void AnnounceWrite(void* begin, int64_t bytes);

}  // namespace lockstep
