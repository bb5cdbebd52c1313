#include "tools/bench/memory_limit.h"

#include <immintrin.h>

#include <algorithm>  // std::min
#include <cstddef>
#include <cstdint>
#include <cstring>  // std::memcpy, std::memmove
#include <vector>

#include "core/base/status.h"
#include "core/comm/launch.h"
#include "glog/logging.h"
#include "tools/bench/call_timing.h"
#include "tools/bench/core_binding.h"

namespace lockstep {
namespace {

constexpr int64_t kLine = 64;
constexpr int64_t kVector = sizeof(__m256i);

struct Streams {
  std::vector<const std::byte*> reads = {};
  std::vector<std::byte*> writes = {};
  int64_t bytes = 0;  // of each
};

// A way to move them.
using Loop = void (*)(const Streams&);

enum class Store { kCached, kStreaming };

// Adds up blocks of `kBlock` bytes and writes each block to all outputs, whole lines; what is left
// over is copied. Adds integers: whatever the bits are, that takes no longer.
template <int64_t kBlock, Store kStore>
void MoveBlocks(const Streams& streams) {
  alignas(kLine) __m256i sum[kBlock / kVector];
  const int64_t whole = streams.bytes / kLine * kLine;
  for (int64_t at = 0; at < whole; at += kBlock) {
    const int64_t vectors = std::min(kBlock, whole - at) / kVector;
    const auto read = [&](size_t i, int64_t v) {
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(streams.reads[i] + at) + v);
    };
    // The first two at once: more of what is awaited from memory is then under way.
    if (streams.reads.size() == 1) {
      for (int64_t v = 0; v < vectors; ++v) sum[v] = read(0, v);
    } else {
      for (int64_t v = 0; v < vectors; ++v) sum[v] = _mm256_add_epi32(read(0, v), read(1, v));
    }
    for (size_t i = 2; i < streams.reads.size(); ++i) {
      for (int64_t v = 0; v < vectors; ++v) sum[v] = _mm256_add_epi32(sum[v], read(i, v));
    }
    for (std::byte* write : streams.writes) {
      auto* to = reinterpret_cast<__m256i*>(write + at);
      for (int64_t v = 0; v < vectors; ++v) {
        if constexpr (kStore == Store::kStreaming) {
          _mm256_stream_si256(to + v, sum[v]);
        } else {
          _mm256_storeu_si256(to + v, sum[v]);
        }
      }
    }
  }
  if constexpr (kStore == Store::kStreaming) _mm_sfence();
  for (std::byte* write : streams.writes) {
    std::memmove(write + whole, streams.reads[0] + whole,  // in place, they are one
                 static_cast<size_t>(streams.bytes - whole));
  }
}

void Copy(const Streams& streams) {
  std::memcpy(streams.writes[0], streams.reads[0], static_cast<size_t>(streams.bytes));
}

std::vector<Loop> LoopsFor(const Traffic& traffic) {
  // Streaming stores are fastest between short reads: on Intel's processors the shortest in the
  // third-level cache, longer ones in memory; on AMD's the shortest, which stay in registers, also
  // where stores are cached.
  std::vector<Loop> loops = {
      &MoveBlocks<4 * kLine, Store::kStreaming>, &MoveBlocks<16 * kLine, Store::kStreaming>,
      &MoveBlocks<4 * kLine, Store::kCached>, &MoveBlocks<128 * kLine, Store::kCached>};
  if (traffic.reads == 1 && traffic.writes == 1 && !traffic.in_place) loops.push_back(&Copy);
  return loops;
}

// The streams of one thread: its slice of all ranks' memory. Where a stream is longer than a slice,
// it lies in the thread's own memory; where it is shorter than a line, all of them do, so that no
// two threads write to one line.
Streams StreamsOf(const TimedCall& call, const Traffic& traffic, int rank,
                  absl::Span<const CallTensors> memory) {
  const int n = call.ranks;
  const bool lines = traffic.stream_bytes >= kLine;
  Streams streams{.bytes = lines ? traffic.stream_bytes / kLine * kLine : traffic.stream_bytes};
  const int64_t begin = traffic.stream_bytes * n <= call.bytes() ? streams.bytes * rank : 0;
  const auto of = [&](int i) {
    return lines ? static_cast<size_t>((rank + i) % n) : static_cast<size_t>(rank);
  };
  for (int i = 0; i < traffic.reads; ++i) {
    streams.reads.push_back(memory[of(i)].input.raw() + (lines ? begin : 0));
  }
  for (int i = 0; i < traffic.writes; ++i) {
    const CallTensors& to = memory[of(i)];
    streams.writes.push_back((traffic.in_place ? to.input : to.output).raw() + (lines ? begin : 0));
  }
  return streams;
}

}  // namespace

double MeasureMemorySeconds(const TimedCall& call, absl::Span<const CallTensors> memory,
                            double budget) {
  CHECK_EQ(memory.size(), static_cast<size_t>(call.ranks));
  const Traffic traffic = LeastTraffic(call);
  const std::vector<Loop> loops = LoopsFor(traffic);
  double best = 0;  // written by rank 0
  const absl::Status status = RunRanks(call.ranks, {}, [&](RankHandle& handle) -> absl::Status {
    BindRank(handle.rank(), call.ranks);
    const Streams streams = StreamsOf(call, traffic, handle.rank(), memory);
    for (const Loop loop : loops) {
      const auto run = [&] {
        loop(streams);
        return absl::OkStatus();
      };
      LS_ASSIGN_OR_RETURN(
          const double seconds,
          TimeCall(run, budget / static_cast<double>(loops.size()), MaxOver(handle.comm())));
      if (handle.rank() == 0 && (best == 0 || seconds < best)) best = seconds;
    }
    return absl::OkStatus();
  });
  CHECK(status.ok()) << status;
  return best;
}

}  // namespace lockstep
