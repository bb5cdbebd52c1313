#include "core/kernels/cpu/attention_tiles.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "core/base/philox.h"
#include "core/kernels/cpu/float_elements.h"
#include "core/kernels/cpu/row_sums.h"
#include "core/kernels/cpu/tile_gemm.h"
#include "core/kernels/cpu/vector_math.h"
#include "glog/logging.h"

namespace lockstep::cpu {
namespace {

void Fetch(const Tensor& tensor, int64_t offset, int64_t width) {
  const int64_t size = SizeOf(tensor.dtype());
  const std::byte* row = tensor.raw() + offset * size;
  for (int64_t byte = 0; byte < width * size; byte += 64) __builtin_prefetch(row + byte, 0, 2);
}

// Calls run(first key, keys, place) for the blocks of some keys. Places of packed keys count from
// the start of a vector in each chunk.
template <typename Run>
void ForBlocks(const AttentionHead& head, const SeenKeys& seen, Run&& run) {
  for (int64_t begin = 0, place = 0; begin < seen.end;
       begin += head.chunk, place += PaddedToVectors(head.chunk)) {
    const int64_t end = std::min(seen.end, begin + head.chunk);
    for (int64_t first = begin; first < end; first += kAttentionTile) {
      if (first < seen.first) continue;
      run(first, std::min(kAttentionTile, end - first), place + first - begin);
    }
  }
}

// The vectors of a row that end before an element.
int64_t WholeVectors(int64_t element) { return element & ~(kLanes - 1); }

}  // namespace

int64_t PaddedToVectors(int64_t count) { return (count + kLanes - 1) & ~(kLanes - 1); }

AttentionHead MakeAttentionHead(const Attention& attention, const Tensor& qkv, int64_t batch,
                                int64_t head, int64_t chunk, InstructionSet instructions) {
  const int64_t time = qkv.shape()[1], row = qkv.shape()[2];
  CHECK_EQ(attention.heads % attention.heads_of_keys(), 0) << attention.heads_of_keys();
  CHECK_EQ(row, attention.packed_width()) << qkv.shape();
  const float scale = 1.0f / std::sqrt(static_cast<float>(attention.head_width));
  const int64_t group = attention.group();
  return {attention,
          batch,
          head,
          time,
          row,
          chunk,
          scale,
          instructions,
          head / group,
          head % group == 0,
          (head + 1) % group == 0};
}

void FetchRow(const AttentionHead& next, int64_t t,
              std::initializer_list<const Tensor*> projections,
              std::initializer_list<const Tensor*> outputs) {
  for (const Tensor* tensor : projections) {
    Fetch(*tensor, next.query() + t * next.row, next.width());
    if (!next.begins_group) continue;
    Fetch(*tensor, next.key() + t * next.row, next.width());
    Fetch(*tensor, next.value() + t * next.row, next.width());
  }
  for (const Tensor* tensor : outputs) {
    Fetch(*tensor, next.output() + t * next.y_row(), next.width());
  }
}

FloatRows HeadRows::Load() const {
  for (int64_t t = 0; IsCopy() && t < time_; ++t) {
    LoadFloats(tensor_, offset_ + t * row_, width_, rows_.At(t));
  }
  return rows_;
}

void HeadRows::Store() const {
  for (int64_t t = 0; IsCopy() && t < time_; ++t) {
    StoreFloats(rows_.At(t), offset_ + t * row_, width_, tensor_);
  }
}

int64_t PackedBlocksSize(int64_t time, int64_t chunk, int64_t width) {
  return time / chunk * PaddedToVectors(chunk) * width;
}

SeenKeys SeenFrom(const AttentionHead& keys, int64_t first_visible, int64_t end) {
  if (first_visible >= end) return {end, end};
  const int64_t in_chunk = first_visible % keys.chunk;
  return {first_visible - in_chunk % kAttentionTile, end};
}

void PackBlocks(const AttentionHead& head, const FloatRows& from, float* packed) {
  ForBlocks(head, {0, head.time}, [&](int64_t first, int64_t keys, int64_t place) {
    PackRight({from.At(first), from.stride, Transpose::kYes}, head.width(), keys,
              packed + place * head.width());
  });
}

void Against(const AttentionHead& head, const float* a, int64_t a_row, int64_t rows,
             const float* blocks, const SeenKeys& seen, float* tile, int64_t tile_row) {
  ForBlocks(head, seen, [&](int64_t first, int64_t keys, int64_t place) {
    Multiply({.m = rows,
              .n = keys,
              .k = head.width(),
              .a = a,
              .a_stride = a_row,
              .packed_b = blocks + place * head.width(),
              .c = tile + first,
              .c_stride = tile_row},
             head.instructions);
  });
}

void Weigh(const AttentionHead& head, const float* tile, int64_t tile_row, int64_t rows,
           const SeenKeys& seen, const float* steps, float* out, int64_t out_row) {
  TileProduct product = {.m = rows,
                         .n = head.width(),
                         .k = seen.end,
                         .a = tile,
                         .a_stride = tile_row,
                         .packed_b = steps,
                         .packed_k = head.time,
                         .c = out,
                         .c_stride = out_row,
                         .addend_stride = out_row};
  if (seen.first == 0) return Multiply(product, head.instructions);
  for (int64_t i = 0; seen.empty() && i < rows; ++i) {
    std::fill_n(out + i * out_row, head.width(), 0.0f);
  }
  // What is left of the first chain of multiply-adds, and then the chains behind it.
  const float* const held = out;
  for (int64_t first = seen.first; first < seen.end; first += product.k) {
    const int64_t end = first == seen.first ? (first / kInnerBlock + 1) * kInnerBlock : seen.end;
    product.k = std::min(end, seen.end) - first;
    product.a = tile + first;
    if (first > seen.first) product.addends = {&held, 1};
    for (int64_t panel = 0; panel < RightPanels(product.n); ++panel) {
      product.packed_b = steps + first * PanelOf(product.n, panel).width;
      MultiplyPanels(product, panel, panel + 1, head.instructions);
    }
  }
}

void WeighTransposed(const AttentionHead& head, const float* tile, int64_t tile_row, int64_t rows,
                     const SeenKeys& seen, const float* packed_by, float* left, Write write,
                     const FloatRows& to) {
  for (int64_t i = 0; write == Write::kOverwrite && i < seen.first; ++i) {
    std::fill_n(to.At(i), head.width(), 0.0f);
  }
  if (seen.empty()) return;
  const int64_t keys = seen.end - seen.first;
  PackLeftTransposed(tile + seen.first, tile_row, keys, rows, left);
  float* const own = to.At(seen.first);
  const float* const held = own;
  Multiply({.m = keys,
            .n = head.width(),
            .k = rows,
            .a = left,
            .packed_b = packed_by,
            .c = own,
            .c_stride = to.stride,
            .addends = {&held, write == Write::kOverwrite ? size_t{0} : size_t{1}},
            .addend_stride = to.stride},
           head.instructions);
}

void DropoutFactors(const Dropout& dropout, int64_t first, int64_t count, float* factors) {
  Philox(dropout.key)
      .FillUniform({factors, static_cast<size_t>(count)}, first, dropout.counter, 0.0f, 1.0f);
  const float scale = 1.0f / (1.0f - dropout.probability);
  for (int64_t j = 0; j < count; ++j) {
    factors[j] = factors[j] >= dropout.probability ? scale : 0.0f;
  }
}

RowExponentials ExponentialsOfRow(float* row, int64_t first, int64_t count, float scale) {
  const int64_t begin = WholeVectors(first), padded = PaddedToVectors(count);
  std::fill(row + begin, row + first, std::numeric_limits<float>::lowest());
  std::fill(row + count, row + padded, std::numeric_limits<float>::lowest());
  const float largest = LargestOfRow(row + begin, padded - begin);
  for (int64_t j = begin; j < padded; ++j) row[j] = Exp((row[j] - largest) * scale);
  std::fill(row, row + first, 0.0f);
  // The padding adds e^-87 at most to a sum of 1 at least: nothing. Zeros before add nothing
  // either.
  return {largest, SumOfRow(row + begin, padded - begin)};
}

void SoftmaxRowBackward(float* p, float* d, int64_t first, int64_t count, int64_t seen, float scale,
                        float log_sum_exp, float product, const float* factors) {
  const int64_t begin = WholeVectors(first), padded = PaddedToVectors(count);
  if (factors != nullptr) {
    for (int64_t j = begin; j < padded; ++j) {
      const float probability = Exp(std::fma(p[j], scale, -log_sum_exp));
      d[j] = probability * (d[j] * factors[j] - product) * scale;
      p[j] = probability * factors[j];
    }
  } else {
    for (int64_t j = begin; j < padded; ++j) {
      p[j] = Exp(std::fma(p[j], scale, -log_sum_exp));
      d[j] = p[j] * (d[j] - product) * scale;
    }
  }
  std::fill(p, p + first, 0.0f);
  std::fill(d, d + first, 0.0f);
  std::fill(p + count, p + std::max(seen, padded), 0.0f);
  std::fill(d + count, d + std::max(seen, padded), 0.0f);
}

float SoftmaxRowProduct(const float* y, const float* dy, int64_t width) {
  return SumRow(width, [=](int64_t c) { return dy[c] * y[c]; });
}

}  // namespace lockstep::cpu
