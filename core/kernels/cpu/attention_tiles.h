// The pieces of causal self-attention for one head: where its rows lie, products of tiles of query
// rows, and the softmax along a tile's rows. What sums them is in attention.cc (whole sequences)
// and attention_leaf_pairs.h (token leaves).

#pragma once

#include <cstdint>
#include <initializer_list>

#include "core/kernels/cpu/instruction_set.h"
#include "core/kernels/options.h"  // Attention
#include "core/tensor/tensor.h"

namespace lockstep::cpu {

// Query rows of a tile, and keys of a block: one panel of a product. Smaller ones would skip more
// of what causality forbids, but lose more on the way in and out of each product.
inline constexpr int64_t kAttentionTile = 48;

// Rows of a tile are padded to whole vectors: loops over them have no tails.
int64_t PaddedToVectors(int64_t count);

// One head of queries of one sequence, or of a sequence's token leaf, and the head of keys and
// values that it reads: where their rows lie in the tensors of all heads.
struct AttentionHead {
  const Attention& attention;
  // The sequence's index in the first dimension of the tensors; the head among those of the call.
  int64_t batch, head;
  int64_t time, row;  // rows; elements between two rows of qkv
  // Rows of consecutive positions: `time`, or a chunk of a token leaf. No tile of queries and no
  // block of keys has rows of two chunks.
  int64_t chunk;
  float scale;
  InstructionSet instructions;
  int64_t key_head;  // among those of the call
  // Whether this head is the first or the last of those that read the same keys.
  bool begins_group, ends_group;

  int64_t width() const { return attention.head_width; }
  int64_t y_row() const { return attention.query_width(); }
  // Offsets into qkv and y of this head's first row.
  int64_t query() const { return batch * time * row + head * width(); }
  int64_t key() const { return batch * time * row + y_row() + key_head * width(); }
  int64_t value() const { return key() + attention.key_width(); }
  int64_t output() const { return batch * time * y_row() + head * width(); }
  int64_t sums() const { return (batch * attention.heads + head) * time; }
};
AttentionHead MakeAttentionHead(const Attention& attention, const Tensor& qkv, int64_t batch,
                                int64_t head, int64_t chunk, InstructionSet instructions);

// The rows of one head, [time, width], as floats: where they lie in an fp32 tensor, else in a copy.
struct FloatRows {
  float* first;
  int64_t stride;  // between two rows

  float* At(int64_t row) const { return first + row * stride; }
};

// Brings row `t` of a head into the second-level cache, of tensors shaped like qkv and like y. A
// head's rows lie far apart, which no processor foresees: while one head is computed, the rows of
// the next are fetched. Keys and values are fetched for the first head of their group.
void FetchRow(const AttentionHead& next, int64_t t,
              std::initializer_list<const Tensor*> projections,
              std::initializer_list<const Tensor*> outputs);

// A head's rows of `tensor`, whose rows of all heads are `row` elements apart, from element
// `offset` on. Those of a 16-bit tensor are in `copy`, [time, width]: Load converts them, and Store
// rounds what was written there.
class HeadRows {
 public:
  HeadRows(const AttentionHead& head, const Tensor& tensor, int64_t offset, int64_t row,
           float* copy)
      : tensor_(tensor),
        time_(head.time),
        width_(head.width()),
        offset_(offset),
        row_(row),
        rows_(tensor.dtype() == DType::kF32 ? FloatRows{tensor.data<float>() + offset, row}
                                            : FloatRows{copy, head.width()}) {}

  FloatRows Load() const;
  FloatRows rows() const { return rows_; }
  void Store() const;

 private:
  bool IsCopy() const { return tensor_.dtype() != DType::kF32; }

  const Tensor& tensor_;
  int64_t time_, width_, offset_, row_;
  FloatRows rows_;
};

// The keys that a tile of queries is computed with: `first` begins a block and `end` ends one, or
// both are the same. No query of the tile sees a key before or behind them. Those before are of
// earlier documents (Documents): their probabilities are 0, so leaving their products out moves no
// bit of a sum, whose chains and blocks stay where they are.
struct SeenKeys {
  int64_t first, end;

  bool empty() const { return first == end; }
};
// For a tile of queries whose first one sees the keys from `first_visible` on, and whose last one
// those up to `end`; the others see no earlier and no later ones.
SeenKeys SeenFrom(const AttentionHead& keys, int64_t first_visible, int64_t end);

// Keys or values [time, width] packed for Against: transposed, in blocks of kAttentionTile, the
// last block of a chunk perhaps smaller. `packed` takes PackedBlocksSize floats.
int64_t PackedBlocksSize(int64_t time, int64_t chunk, int64_t width);
void PackBlocks(const AttentionHead& head, const FloatRows& from, float* packed);

// Columns [seen.first, seen.end) of tile = a[rows, width] blocks^T.
void Against(const AttentionHead& head, const float* a, int64_t a_row, int64_t rows,
             const float* blocks, const SeenKeys& seen, float* tile, int64_t tile_row);

// out[rows, width] = these columns of tile[rows, ...] times as many of head.time steps, packed by
// PackRight.
void Weigh(const AttentionHead& head, const float* tile, int64_t tile_row, int64_t rows,
           const SeenKeys& seen, const float* steps, float* out, int64_t out_row);

// Rows [seen.first, seen.end) of to[..., width] (+)= these columns of tile[rows, ...]^T by[rows,
// width], `by` packed by PackRight; rows before them (+)= 0. `left` takes PackedLeftSize(seen.end,
// rows) floats.
void WeighTransposed(const AttentionHead& head, const float* tile, int64_t tile_row, int64_t rows,
                     const SeenKeys& seen, const float* packed_by, float* left, Write write,
                     const FloatRows& to);

// factors[j]: 1 / (1 - p) where element first + j of the unsharded probabilities is kept, else 0.
void DropoutFactors(const Dropout& dropout, int64_t first, int64_t count, float* factors);

// Puts exp((logit - largest) * scale) in place of a row's logits [first, count), first < count, and
// zeros before them, which need not be there. What follows them up to a whole vector is undefined
// afterwards. The sum has a place for each of the first `count` keys: what is masked there counts
// as zero.
struct RowExponentials {
  float largest;  // of the logits, which are not scaled
  float sum;
};
RowExponentials ExponentialsOfRow(float* row, int64_t first, int64_t count, float scale);

// From one row's logits p and products d of dy with the values, of keys [first, count), the
// probabilities (as dropout left them) and the gradients of the unscaled logits; the others up to
// `seen` zeroed. product = sum_j p_j d_j over all keys of the row. factors: dropout's, or null.
void SoftmaxRowBackward(float* p, float* d, int64_t first, int64_t count, int64_t seen, float scale,
                        float log_sum_exp, float product, const float* factors);

// The sum of p_j d_j along a row, which equals the product of y and dy there (FlashAttention,
// section B.4).
float SoftmaxRowProduct(const float* y, const float* dy, int64_t width);

}  // namespace lockstep::cpu
