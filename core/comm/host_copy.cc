#include "core/comm/host_copy.h"

#include <algorithm>  // std::all_of, std::min
#include <cstring>    // std::memcpy

namespace lockstep {
namespace {

void CopyPlain(const std::byte* input, absl::Span<std::byte* const> outputs, int64_t bytes) {
  for (std::byte* output : outputs) std::memcpy(output, input, static_cast<size_t>(bytes));
}

// To outputs of the same alignment.
void StreamTogether(const std::byte* input, absl::Span<std::byte* const> outputs, int64_t bytes) {
  using Bytes = Burst<uint8_t>;
  const int64_t head = std::min(bytes, BytesToAlignment(outputs[0]));
  CopyPlain(input, outputs, head);
  int64_t at = head;
  for (; at + Bytes::kBytes <= bytes; at += Bytes::kBytes) {
    Bytes burst;
    burst.Load(input + at);
    for (std::byte* output : outputs) burst.StoreTo<Store::kStreaming>(output + at);
  }
  for (std::byte* output : outputs) {
    std::memcpy(output + at, input + at, static_cast<size_t>(bytes - at));
  }
  FinishStreaming();
}

}  // namespace

Moves PreferredMoves() {
#if defined(__AVX__)
  static const Moves preferred = __builtin_cpu_is("amd") ? Moves::kBursts : Moves::kBlocks;
  return preferred;
#else
  return Moves::kBlocks;
#endif
}

Store StoreForCopies(int64_t bytes) {
  return bytes >= kStreamingBytes && PreferredMoves() == Moves::kBursts ? Store::kStreaming
                                                                        : Store::kCached;
}

void CopyToAll(const std::byte* input, absl::Span<std::byte* const> outputs, int64_t bytes,
               Store store) {
  if (outputs.empty() || bytes <= 0) return;
  if (store == Store::kCached) return CopyPlain(input, outputs, bytes);
  const bool alike = std::all_of(outputs.begin(), outputs.end(), [&](const std::byte* output) {
    return BytesToAlignment(output) == BytesToAlignment(outputs[0]);
  });
  if (alike) return StreamTogether(input, outputs, bytes);
  for (std::byte* output : outputs) StreamTogether(input, {&output, 1}, bytes);
}

void Swap(std::byte* one, std::byte* other, int64_t bytes, Moves moves) {
  int64_t at = 0;
  if (moves == Moves::kBursts) {
    using Bytes = Burst<uint8_t>;
    for (; at + Bytes::kBytes <= bytes; at += Bytes::kBytes) {
      Bytes first, second;
      first.Load(one + at);
      second.Load(other + at);
      first.StoreTo<Store::kCached>(other + at);
      second.StoreTo<Store::kCached>(one + at);
    }
  }
  constexpr int64_t kBlock = 8192;
  std::byte block[kBlock];
  for (; at < bytes; at += kBlock) {
    const auto size = static_cast<size_t>(std::min(kBlock, bytes - at));
    std::memcpy(block, one + at, size);
    std::memcpy(one + at, other + at, size);
    std::memcpy(other + at, block, size);
  }
}

}  // namespace lockstep
