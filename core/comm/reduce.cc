#include "core/comm/reduce.h"

#include <algorithm>  // std::all_of, std::any_of, std::find, std::max, std::min
#include <cstddef>
#include <cstdint>
#include <cstring>      // std::memcpy
#include <iterator>     // std::ssize
#include <type_traits>  // std::type_identity

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

// Copies from a block in cache. After streaming, FinishStreaming follows.
template <Store store>
void CopyBlock(std::byte* to, const std::byte* from, int64_t bytes) {
#if defined(__AVX__)
  if constexpr (store == Store::kStreaming) {
    constexpr int64_t kVector = sizeof(__m256i);
    const int64_t head = std::min(bytes, BytesToAlignment(to));
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

// Streaming stores are fastest in short runs between reads; but not on processors that prefer
// bursts (PreferredMoves), where 4 KiB are the best of what is longer than a burst.
constexpr int64_t kBlockBytes = 8 << 10, kStreamedBlockBytes = 1 << 10;
constexpr int64_t kStreamedBlockBytesBesideBursts = 4 << 10;

// The tree over `leaves` leaves: with each leaf, how many nodes are merged, and how many nodes wait
// at a time.
struct Merges {
  absl::InlinedVector<int64_t, 16> merged;
  int64_t deepest = 1;

  explicit Merges(int64_t leaves) {
    if (leaves <= 2) return;
    TreeStack stack(leaves);
    for (int64_t leaf = 0; leaf < leaves; ++leaf) {
      merged.push_back(stack.Push());
      deepest = std::max(deepest, std::ssize(stack.nodes()));
    }
  }

  // Calls leaves(i, j, depth) to make the node at `depth` of leaves i and j, add(depth, i) to add
  // leaf i to that node, and nodes(left, right) to add one node to another, in the order of the
  // tree over three leaves or more.
  template <typename Leaves, typename Add, typename Nodes>
  void Walk(Leaves&& leaves, Add&& add, Nodes&& nodes) const {
    leaves(0, 1, 0);
    int64_t depth = 1;
    for (int64_t leaf = 2; leaf < std::ssize(merged); ++leaf) {
      int64_t merges = merged[static_cast<size_t>(leaf)];
      if (merges > 0) {  // the last one of an odd number
        add(depth - 1, leaf);
      } else {  // the next leaf is its other half
        leaves(leaf, leaf + 1, depth++);
        merges = merged[static_cast<size_t>(++leaf)];
      }
      for (; merges > 1; --merges, --depth) nodes(depth - 2, depth - 1);
    }
  }
};

template <typename Type, ReduceOp op, Store store>
void ReduceBlocks(absl::Span<const std::byte* const> inputs, absl::Span<std::byte* const> outputs,
                  int64_t begin, int64_t end, int64_t most_bytes) {
  using Stored = typename Type::Stored;
  const auto leaves = static_cast<int64_t>(inputs.size());
  const Merges merges(leaves);

  alignas(kCacheLine) Stored nodes[kNodeBytes / sizeof(Stored)];
  const int64_t room = kNodeBytes / merges.deepest / kCacheLine * kCacheLine;
  const int64_t block = std::min(most_bytes, room) / static_cast<int64_t>(sizeof(Stored));
  const auto node = [&](int64_t depth) { return nodes + depth * block; };

  for (int64_t at = begin; at < end; at += block) {
    const int64_t n = std::min(block, end - at);
    const auto input = [&](int64_t leaf) {
      return reinterpret_cast<const Stored*>(inputs[static_cast<size_t>(leaf)]) + at;
    };
    if (leaves == 1) {
      std::memcpy(nodes, input(0), static_cast<size_t>(n) * sizeof(Stored));
    } else if (leaves == 2) {
      CombineBlocks<Type, op>(input(0), input(1), nodes, n);
    } else {
      merges.Walk(
          [&](int64_t i, int64_t j, int64_t depth) {
            CombineBlocks<Type, op>(input(i), input(j), node(depth), n);
          },
          [&](int64_t depth, int64_t i) {
            CombineBlocks<Type, op>(node(depth), input(i), node(depth), n);
          },
          [&](int64_t left, int64_t right) {
            CombineBlocks<Type, op>(node(left), node(right), node(left), n);
          });
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
  if constexpr (store == Store::kStreaming) FinishStreaming();
}

// out = a op b, lane by lane, as Combine; `out` may be `a`.
template <ReduceOp op, typename T>
void CombineBursts(const Burst<T>& a, const Burst<T>& b, Burst<T>& out) {
  for (int i = 0; i < Burst<T>::kVectors; ++i) {
    const auto x = a.lanes[i], y = b.lanes[i];
    if constexpr (op == ReduceOp::kMin) {
      out.lanes[i] = ((y < x) | (y != y)) ? y : x;
    } else if constexpr (op == ReduceOp::kMax) {
      out.lanes[i] = ((y > x) | (y != y)) ? y : x;
    } else if constexpr (op == ReduceOp::kProduct) {
      out.lanes[i] = x * y;
    } else {
      out.lanes[i] = x + y;
    }
  }
}

// As ReduceBlocks over whole bursts; T is unsigned where integers wrap around. What is streamed to
// is aligned. Two inputs stay in registers.
template <typename T, ReduceOp op, Store store>
void ReduceBursts(absl::Span<const std::byte* const> inputs, absl::Span<std::byte* const> outputs,
                  int64_t begin, int64_t end) {
  const auto leaves = static_cast<int64_t>(inputs.size());
  const Merges merges(leaves);
  absl::InlinedVector<Burst<T>, 8> nodes(static_cast<size_t>(merges.deepest));
  const auto node = [&](int64_t depth) -> Burst<T>& { return nodes[static_cast<size_t>(depth)]; };
  constexpr auto kElement = static_cast<int64_t>(sizeof(T));
  for (int64_t at = begin * kElement; at < end * kElement; at += Burst<T>::kBytes) {
    const auto load = [&](int64_t leaf) {
      Burst<T> burst;
      burst.Load(inputs[static_cast<size_t>(leaf)] + at);
      return burst;
    };
    Burst<T> result;
    if (leaves == 1) {
      result = load(0);
    } else if (leaves == 2) {
      CombineBursts<op>(load(0), load(1), result);
    } else {
      merges.Walk(
          [&](int64_t i, int64_t j, int64_t depth) {
            CombineBursts<op>(load(i), load(j), node(depth));
          },
          [&](int64_t depth, int64_t i) { CombineBursts<op>(node(depth), load(i), node(depth)); },
          [&](int64_t left, int64_t right) {
            CombineBursts<op>(node(left), node(right), node(left));
          });
      result = node(0);
    }
    if constexpr (op == ReduceOp::kAverage) {
      for (auto& lanes : result.lanes) lanes /= static_cast<T>(leaves);
    }
    for (std::byte* output : outputs) result.template StoreTo<store>(output + at);
  }
  if constexpr (store == Store::kStreaming) FinishStreaming();
}

// As ReduceBlocks, with the stores that suit how much there is. In place, the line that is written
// has just been read and lies in the cache.
template <typename Type, ReduceOp op>
void ReduceBySize(absl::Span<const std::byte* const> inputs, absl::Span<std::byte* const> outputs,
                  int64_t begin, int64_t end, Moves moves) {
  using Stored = typename Type::Stored;
  constexpr auto kElement = static_cast<int64_t>(sizeof(Stored));
  const auto written = (end - begin) * kElement * std::ssize(outputs);
  const bool in_place = std::any_of(outputs.begin(), outputs.end(), [&](const std::byte* output) {
    return std::find(inputs.begin(), inputs.end(), output) != inputs.end();
  });
  const bool streams = written >= kStreamingBytes && !in_place;

  constexpr bool kInteger = std::is_integral_v<Stored>;
  if constexpr (std::is_same_v<Type, Plain<Stored>> && !(kInteger && op == ReduceOp::kAverage)) {
    const auto head = [&](const std::byte* output) {
      return streams ? BytesToAlignment(output + begin * kElement) / kElement : 0;
    };
    const bool alike = std::all_of(outputs.begin(), outputs.end(), [&](const std::byte* output) {
      return head(output) == head(outputs[0]);
    });
    if (moves == Moves::kBursts && !outputs.empty() && alike) {
      constexpr bool kWraps = kInteger && op != ReduceOp::kMin && op != ReduceOp::kMax;
      using Lane = typename std::conditional_t<kWraps, std::make_unsigned<Stored>,
                                               std::type_identity<Stored>>::type;
      const int64_t first = std::min(end, begin + head(outputs[0]));
      const int64_t last = end - (end - first) % Burst<Lane>::kElements;
      const auto ends = [&](int64_t from, int64_t to) {
        if (from == to) return;
        ReduceBlocks<Type, op, Store::kCached>(inputs, outputs, from, to, kBlockBytes);
      };
      ends(begin, first);
      if (streams) {
        ReduceBursts<Lane, op, Store::kStreaming>(inputs, outputs, first, last);
      } else {
        ReduceBursts<Lane, op, Store::kCached>(inputs, outputs, first, last);
      }
      return ends(last, end);
    }
  }
  if (streams) {
    ReduceBlocks<Type, op, Store::kStreaming>(
        inputs, outputs, begin, end,
        moves == Moves::kBursts ? kStreamedBlockBytesBesideBursts : kStreamedBlockBytes);
  } else {
    ReduceBlocks<Type, op, Store::kCached>(inputs, outputs, begin, end, kBlockBytes);
  }
}

template <typename Type>
void ReduceAs(ReduceOp op, absl::Span<const std::byte* const> inputs,
              absl::Span<std::byte* const> outputs, int64_t begin, int64_t end, Moves moves) {
  switch (op) {
    case ReduceOp::kSum:
      return ReduceBySize<Type, ReduceOp::kSum>(inputs, outputs, begin, end, moves);
    case ReduceOp::kProduct:
      return ReduceBySize<Type, ReduceOp::kProduct>(inputs, outputs, begin, end, moves);
    case ReduceOp::kMin:
      return ReduceBySize<Type, ReduceOp::kMin>(inputs, outputs, begin, end, moves);
    case ReduceOp::kMax:
      return ReduceBySize<Type, ReduceOp::kMax>(inputs, outputs, begin, end, moves);
    case ReduceOp::kAverage:
      return ReduceBySize<Type, ReduceOp::kAverage>(inputs, outputs, begin, end, moves);
  }
}

}  // namespace

void ReduceByTree(DType dtype, ReduceOp op, absl::Span<const std::byte* const> inputs,
                  absl::Span<std::byte* const> outputs, int64_t begin, int64_t end, Moves moves) {
  if (begin >= end) return;
  switch (dtype) {
    case DType::kF32:
      return ReduceAs<Plain<float>>(op, inputs, outputs, begin, end, moves);
    case DType::kF16:
      return ReduceAs<Half>(op, inputs, outputs, begin, end, moves);
    case DType::kBF16:
      return ReduceAs<BFloat16>(op, inputs, outputs, begin, end, moves);
    case DType::kF64:
      return ReduceAs<Plain<double>>(op, inputs, outputs, begin, end, moves);
    case DType::kI32:
      return ReduceAs<Plain<int32_t>>(op, inputs, outputs, begin, end, moves);
    case DType::kI64:
      return ReduceAs<Plain<int64_t>>(op, inputs, outputs, begin, end, moves);
    case DType::kU8:
      break;
  }
  LOG(FATAL) << "no reduction of " << Name(dtype);
}

}  // namespace lockstep
