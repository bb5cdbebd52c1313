// What kernels are told beside their tensors.

#pragma once

#include <cstdint>

namespace lockstep {

// Whether a kernel replaces what its output holds or adds to it.
enum class Write { kOverwrite, kAccumulate };

// What follows a matrix product or a normalisation while the result is still in cache.
enum class Activation { kNone, kRelu };

// Rows of a leaf of every sum over rows on the CPU, as of a weight's gradient (docs/numerics.md).
// What is called on this times a power of two of rows makes a node of the tree over leaves.
inline constexpr int64_t kRowLeaf = 128;

enum class Transpose { kNo, kYes };

// A two-dimensional convolution or pooling window over [batch, height, width, channels].
struct Window {
  int kernel = 3;  // height and width
  int stride = 1;
  int padding = 0;  // zeros on each side

  int64_t Output(int64_t extent) const { return (extent + 2 * padding - kernel) / stride + 1; }
};

// Where dropout's random numbers come from (contract 4 of the design): element i of the unsharded
// tensor, in (step, micro_batch), keeps its value if Philox(key).Uniform(i, step << 32 |
// micro_batch) is at least `probability`, and is scaled by 1 / (1 - probability).
struct Dropout {
  float probability = 0;  // of being zeroed, in [0, 1)
  uint64_t key = 0;
  uint64_t counter = 0;  // step << 32 | micro_batch
};

// The documents that samples are packed from, in host memory: i32 [samples, time], of each position
// of a sample the first position of its document. Ascends in a sample.
struct Documents {
  const int32_t* first = nullptr;  // null: a sample is one document
  int64_t time = 0;                // positions of a sample

  int32_t FirstOf(int64_t sample, int64_t position) const {
    return first == nullptr ? 0 : first[sample * time + position];
  }
};

// Causal multi-head self-attention over packed projections. Heads are heads of queries. Keys and
// values may have fewer heads, each for a group of consecutive heads of queries (grouped-query
// attention; Ainslie et al., 2023).
struct Attention {
  int64_t heads = 1;       // that this call computes
  int64_t head_width = 0;  // elements per head; the logits are scaled by its inverse square root
  Dropout dropout;  // of the probabilities, element ((b * total_heads + h) * time + i) * time + j
  int64_t total_heads = 1;  // of the unsharded layer
  int64_t first_head = 0;   // logical index of this call's first head
  // To whose tokens the attention of a document's tokens is confined; they outlive the passes.
  Documents documents = {};
  // Heads of keys and of values that this call computes, a divisor of `heads`; 0: as many as heads.
  int64_t key_heads = 0;

  int64_t heads_of_keys() const { return key_heads > 0 ? key_heads : heads; }
  // Number of heads of queries that one head of keys serves.
  int64_t group() const { return heads / heads_of_keys(); }
  // Widths of a row of all queries, of all keys (or all values), and of the packed projections.
  int64_t query_width() const { return heads * head_width; }
  int64_t key_width() const { return heads_of_keys() * head_width; }
  int64_t packed_width() const { return query_width() + 2 * key_width(); }
};

// Rotary positions (Su et al., "RoFormer", 2021): in each head, elements i and i + head_width / 2
// of a row are the coordinates of a point in a plane, which turns by an angle that depends on the
// row's position and on i. Hugging Face's transformers pair the elements in this way.
struct Rotation {
  // kBackward turns the other way: the gradient of kForward.
  enum class Direction { kForward, kBackward };

  int64_t heads = 1;       // that are turned: the first ones of each row
  int64_t head_width = 0;  // even
  Direction direction = Direction::kForward;
};

// How a mixture of experts chooses `chosen` of `experts` experts for each row. Experts are ranked
// by their scores; of equal scores the lower index comes first. A row's weights are the scores of
// the experts that it chose, divided by their sum and multiplied by `scaling`.
struct Routing {
  enum class Scores {
    kSoftmax,  // over all experts (Jiang et al., "Mixtral of Experts", 2024)
    kSigmoid,  // of each logit (DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024)
  };

  int64_t experts = 8;
  int64_t chosen = 2;  // experts of a row
  Scores scores = Scores::kSoftmax;
  float scaling = 1;
};

// A sum of squares that does not depend on the order, the sharding or the number of threads: the
// squares, exact in double, are cut into three bins of fixed exponents relative to `scale`, and
// each bin adds without rounding (Demmel and Nguyen, "Fast Reproducible Floating-Point Summation",
// ARITH 2013). Bins of partial sums with the same scale add up exactly.
struct SquareSum {
  double bins[3] = {0, 0, 0};

  void Add(const SquareSum& other) {
    for (int i = 0; i < 3; ++i) bins[i] += other.bins[i];
  }
  double Total() const { return bins[0] + bins[1] + bins[2]; }
};

// What GPUs multiply fp32 numbers in, in matrix products and convolutions: all of fp32's bits, or
// the 10 of TF32's mantissa, which tensor cores are several times as fast with. Sums are fp32 in
// any case.
enum class Fp32Products { kFp32, kTf32 };

}  // namespace lockstep
