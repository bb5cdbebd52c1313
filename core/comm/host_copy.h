// Bulk copies in host memory, and the means that they share with reductions (reduce.h).

#pragma once

#if defined(__AVX__)
#include <immintrin.h>  // streaming stores
#endif

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace lockstep {

// How results get to memory. A store into a line that no cache holds first reads it from memory:
// half as many bytes again for an all-reduce. Streaming stores do not, but what they write must
// then come from memory when it is next read.
enum class Store { kCached, kStreaming };

// From this many bytes on, what one task of a collective writes is streamed: it would outlive
// neither the first- nor the second-level cache.
inline constexpr int64_t kStreamingBytes = 8 << 20;

// Makes streaming stores visible to other threads before anything later is.
inline void FinishStreaming() {
#if defined(__AVX__)
  _mm_sfence();
#endif
}

// What large amounts of data go through between their loads and their stores.
enum class Moves {
  kBlocks,  // a block in the first-level cache, and the C library's memcpy for copies
  kBursts,  // registers alone, 256 bytes at a time
};

// The faster of the two on this processor. Bursts on AMD's: there blocks of 1 or 2 KiB halve the
// speed of streaming stores, and glibc streams from 240 MiB on only, because it takes the
// third-level caches of the whole package for one. Blocks elsewhere (docs/benchmarks.md).
Moves PreferredMoves();

// The stores for a task that copies `bytes` bytes. Cached ones where copies are memcpy's, which
// knows when to stream.
Store StoreForCopies(int64_t bytes);

// 256 bytes in eight registers.
template <typename T>
struct Burst {
  using Lanes __attribute__((vector_size(32))) = T;
  using Unaligned __attribute__((vector_size(32), aligned(1), may_alias)) = T;

  static constexpr int kVectors = 8;
  static constexpr int64_t kAlignment = sizeof(Lanes);  // of what is streamed to
  static constexpr int64_t kBytes = kVectors * kAlignment;
  static constexpr int64_t kElements = kBytes / static_cast<int64_t>(sizeof(T));

  Lanes lanes[kVectors];

  void Load(const std::byte* from) {
    for (int i = 0; i < kVectors; ++i) lanes[i] = reinterpret_cast<const Unaligned*>(from)[i];
  }

  template <Store store>
  void StoreTo(std::byte* to) const {
    for (int i = 0; i < kVectors; ++i) {
#if defined(__AVX__)
      if constexpr (store == Store::kStreaming) {
        _mm256_stream_si256(reinterpret_cast<__m256i*>(to) + i,
                            reinterpret_cast<__m256i>(lanes[i]));
        continue;
      }
#endif
      reinterpret_cast<Unaligned*>(to)[i] = lanes[i];
    }
  }
};

// Bytes from `address` to the next place that a burst can be streamed to.
inline int64_t BytesToAlignment(const std::byte* address) {
  constexpr int64_t kAlignment = Burst<uint8_t>::kAlignment;
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(address) % kAlignment);
  return past == 0 ? 0 : kAlignment - past;
}

// Copies `bytes` bytes to each of `outputs`, none of which overlaps `input`: by memcpy, or by
// streaming stores, which read the input once where all outputs have the same alignment.
void CopyToAll(const std::byte* input, absl::Span<std::byte* const> outputs, int64_t bytes,
               Store store);

// Exchanges the contents of two places that do not overlap.
void Swap(std::byte* one, std::byte* other, int64_t bytes, Moves moves);

}  // namespace lockstep
