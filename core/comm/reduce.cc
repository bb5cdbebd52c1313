#include "core/comm/reduce.h"

#if defined(__AVX__)
#include <immintrin.h>  // streaming stores
#endif

#include <algorithm>  // std::any_of, std::find, std::min
#include <cstddef>
#include <cstdint>
#include <cstring>   // std::memcpy
#include <iterator>  // std::ssize
#include <type_traits>

#include "absl/container/inlined_vector.h"
#include "core/base/half.h"
#include "core/base/sum_tree.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// What an element is stored as, what it is combined in, and the way between the two.
template <typename T>
struct Plain {
  using Stored = T;
  using Combined = T;
  static T Load(T x) { return x; }
  static T Store(T x) { return x; }
};
struct Half {
  using Stored = uint16_t;
  using Combined = float;
  static float Load(uint16_t x) { return HalfToFloat(x); }
  static uint16_t Store(float x) { return FloatToHalf(x); }
};
struct BFloat16 {
  using Stored = uint16_t;
  using Combined = float;
  static float Load(uint16_t x) { return BFloat16ToFloat(x); }
  static uint16_t Store(float x) { return FloatToBFloat16(x); }
};

template <ReduceOp op, typename T>
T Combine(T a, T b) {
  if constexpr (op == ReduceOp::kMin || op == ReduceOp::kMax) {
    const bool replaces = op == ReduceOp::kMin ? b < a : b > a;
    return replaces || b != b ? b : a;  // b != b: a NaN is kept from wherever it comes
  } else if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;  // wraps around where signed arithmetic must not
    const auto ua = static_cast<Unsigned>(a);
    const auto ub = static_cast<Unsigned>(b);
    return static_cast<T>(op == ReduceOp::kProduct ? ua * ub : ua + ub);
  } else {
    return op == ReduceOp::kProduct ? a * b : a + b;
  }
}

// How results get to the outputs. A store into a line that no cache holds first reads it from
// memory: half as many bytes again for an all-reduce. Streaming stores do not, but what they write
// must then come from memory when it is next read.
enum class Store { kCached, kStreaming };

// From this many bytes on, the outputs of one call are streamed: they would outlive neither the
// first- nor the second-level cache.
constexpr int64_t kStreamingBytes = 8 << 20;

// Copies from a block in cache. After streaming, FinishStores makes the stores visible to other
// threads before anything later is.
template <Store store>
void CopyBlock(std::byte* to, const std::byte* from, int64_t bytes) {
#if defined(__AVX__)
  if constexpr (store == Store::kStreaming) {
    constexpr int64_t kVector = sizeof(__m256i);
    const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % kVector);
    const int64_t head = std::min(bytes, past == 0 ? 0 : kVector - past);
    std::memcpy(to, from, static_cast<size_t>(head));
    int64_t at = head;
    for (; at + kVector <= bytes; at += kVector) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at),
                          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at)));
    }
    std::memcpy(to + at, from + at, static_cast<size_t>(bytes - at));
    return;
  }
#endif
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

template <Store store>
void FinishStores() {
#if defined(__AVX__)
  if constexpr (store == Store::kStreaming) _mm_sfence();
#endif
}

constexpr int64_t kCacheLine = 64;

// out = a op b, element by element. `out` begins on a cache line; it may be `a`.
template <typename Type, ReduceOp op>
void CombineBlocks(const typename Type::Stored* a, const typename Type::Stored* b,
                   typename Type::Stored* out, int64_t count) {
  out = static_cast<typename Type::Stored*>(__builtin_assume_aligned(out, kCacheLine));
  if constexpr (std::is_same_v<typename Type::Stored, typename Type::Combined>) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) out[i] = Combine<op>(a[i], b[i]);
    return;
  }
  // Two loops, each of which has the registers that its conversion takes.
  constexpr int64_t kRun = 256;
  alignas(kCacheLine) typename Type::Combined sums[kRun];
  for (int64_t at = 0; at < count; at += kRun) {
    const int64_t n = std::min(kRun, count - at);
    for (int64_t i = 0; i < n; ++i) {
      sums[i] = Combine<op>(Type::Load(a[at + i]), Type::Load(b[at + i]));
    }
    for (int64_t i = 0; i < n; ++i) out[at + i] = Type::Store(sums[i]);
  }
}

// What is combined in: room for a block of each node that waits for its other half. With as much of
// two inputs it fits in any first-level cache.
constexpr int64_t kNodeBytes = 16 << 10;

// Streaming stores are fastest in short runs between reads.
constexpr int64_t kBlockBytes = 8 << 10, kStreamedBlockBytes = 1 << 10;

template <typename Type, ReduceOp op, Store store>
void ReduceBlocks(absl::Span<const std::byte* const> inputs, absl::Span<std::byte* const> outputs,
                  int64_t begin, int64_t end) {
  using Stored = typename Type::Stored;
  const auto leaves = static_cast<int64_t>(inputs.size());
  absl::InlinedVector<int64_t, 16> merged;  // with each leaf, how many nodes
  int64_t deepest = 1;
  if (leaves > 2) {
    TreeStack stack(leaves);
    for (int64_t leaf = 0; leaf < leaves; ++leaf) {
      merged.push_back(stack.Push());
      deepest = std::max(deepest, std::ssize(stack.nodes()));
    }
  }

  alignas(kCacheLine) Stored nodes[kNodeBytes / sizeof(Stored)];
  constexpr int64_t kMost = store == Store::kStreaming ? kStreamedBlockBytes : kBlockBytes;
  const int64_t room = kNodeBytes / deepest / kCacheLine * kCacheLine;
  const int64_t block = std::min(kMost, room) / static_cast<int64_t>(sizeof(Stored));
  const auto node = [&](int64_t depth) { return nodes + depth * block; };

  for (int64_t at = begin; at < end; at += block) {
    const int64_t n = std::min(block, end - at);
    const auto input = [&](int64_t leaf) {
      return reinterpret_cast<const Stored*>(inputs[static_cast<size_t>(leaf)]) + at;
    };
    if (leaves == 1) {
      std::memcpy(nodes, input(0), static_cast<size_t>(n) * sizeof(Stored));
    } else {
      CombineBlocks<Type, op>(input(0), input(1), nodes, n);
    }
    int64_t depth = 1;
    for (int64_t leaf = 2; leaf < leaves; ++leaf) {
      int64_t merges = merged[static_cast<size_t>(leaf)];
      if (merges > 0) {  // the last one of an odd number
        CombineBlocks<Type, op>(node(depth - 1), input(leaf), node(depth - 1), n);
      } else {  // the next leaf is its other half
        CombineBlocks<Type, op>(input(leaf), input(leaf + 1), node(depth++), n);
        merges = merged[static_cast<size_t>(++leaf)];
      }
      for (; merges > 1; --merges, --depth) {
        CombineBlocks<Type, op>(node(depth - 2), node(depth - 1), node(depth - 2), n);
      }
    }
    if constexpr (op == ReduceOp::kAverage) {
      const auto members = static_cast<typename Type::Combined>(leaves);
      for (int64_t i = 0; i < n; ++i) nodes[i] = Type::Store(Type::Load(nodes[i]) / members);
    }
    for (std::byte* output : outputs) {
      CopyBlock<store>(output + at * static_cast<int64_t>(sizeof(Stored)),
                       reinterpret_cast<const std::byte*>(nodes),
                       n * static_cast<int64_t>(sizeof(Stored)));
    }
  }
  FinishStores<store>();
}

// As ReduceBlocks, with the stores that suit how much there is. In place, the line that is written
// has just been read and lies in the cache.
template <typename Type, ReduceOp op>
void ReduceBySize(absl::Span<const std::byte* const> inputs, absl::Span<std::byte* const> outputs,
                  int64_t begin, int64_t end) {
  const int64_t written =
      (end - begin) * static_cast<int64_t>(sizeof(typename Type::Stored) * outputs.size());
  const bool in_place = std::any_of(outputs.begin(), outputs.end(), [&](const std::byte* output) {
    return std::find(inputs.begin(), inputs.end(), output) != inputs.end();
  });
  if (written >= kStreamingBytes && !in_place) {
    ReduceBlocks<Type, op, Store::kStreaming>(inputs, outputs, begin, end);
  } else {
    ReduceBlocks<Type, op, Store::kCached>(inputs, outputs, begin, end);
  }
}

template <typename Type>
void ReduceAs(ReduceOp op, absl::Span<const std::byte* const> inputs,
              absl::Span<std::byte* const> outputs, int64_t begin, int64_t end) {
  switch (op) {
    case ReduceOp::kSum:
      return ReduceBySize<Type, ReduceOp::kSum>(inputs, outputs, begin, end);
    case ReduceOp::kProduct:
      return ReduceBySize<Type, ReduceOp::kProduct>(inputs, outputs, begin, end);
    case ReduceOp::kMin:
      return ReduceBySize<Type, ReduceOp::kMin>(inputs, outputs, begin, end);
    case ReduceOp::kMax:
      return ReduceBySize<Type, ReduceOp::kMax>(inputs, outputs, begin, end);
    case ReduceOp::kAverage:
      return ReduceBySize<Type, ReduceOp::kAverage>(inputs, outputs, begin, end);
  }
}

}  // namespace

void ReduceByTree(DType dtype, ReduceOp op, absl::Span<const std::byte* const> inputs,
                  absl::Span<std::byte* const> outputs, int64_t begin, int64_t end) {
  if (begin >= end) return;
  switch (dtype) {
    case DType::kF32:
      return ReduceAs<Plain<float>>(op, inputs, outputs, begin, end);
    case DType::kF16:
      return ReduceAs<Half>(op, inputs, outputs, begin, end);
    case DType::kBF16:
      return ReduceAs<BFloat16>(op, inputs, outputs, begin, end);
    case DType::kF64:
      return ReduceAs<Plain<double>>(op, inputs, outputs, begin, end);
    case DType::kI32:
      return ReduceAs<Plain<int32_t>>(op, inputs, outputs, begin, end);
    case DType::kI64:
      return ReduceAs<Plain<int64_t>>(op, inputs, outputs, begin, end);
    case DType::kU8:
      break;
  }
  LOG(FATAL) << "no reduction of " << Name(dtype);
}

}  // namespace lockstep
