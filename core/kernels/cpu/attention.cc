// Causal self-attention in tiles of query rows: the probabilities of a tile live in cache and are
// made again in backward from the stored log-sum-exp of each row, so nothing of size time x time is
// ever in memory. Keys behind a tile's last query are never touched, which halves the work.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/base/parallel.h"
#include "core/base/philox.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/span.h"
#include "core/kernels/cpu/vector_math.h"
#include "glog/logging.h"
#include "dnnl.h"  // dnnl_sgemm

namespace lockstep {
namespace {

constexpr int64_t kTile = 64;  // query rows

// The geometry that one (batch, head) pair's tiles share.
struct Head {
  const Attention& attention;
  int64_t batch, head, time, row;  // row: elements between two time steps of qkv
  float scale;

  int64_t width() const { return attention.head_width; }
  int64_t y_row() const { return attention.heads * attention.head_width; }
  // Offsets into qkv and y of this head's first time step.
  int64_t query() const { return batch * time * row + head * width(); }
  int64_t key() const { return query() + y_row(); }
  int64_t value() const { return query() + 2 * y_row(); }
  int64_t output() const { return batch * time * y_row() + head * width(); }
  int64_t sums() const { return (batch * attention.heads + head) * time; }
};

void Gemm(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
          int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  CHECK_EQ(dnnl_sgemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc), dnnl_success);
}

// The scaled logits of query rows [first, first + rows) against keys [0, first + rows), row length
// `time`, into tile.
void Logits(const Head& head, const float* qkv, int64_t first, int64_t rows, float* tile) {
  Gemm('N', 'T', rows, first + rows, head.width(), head.scale,
       qkv + head.query() + first * head.row, head.row, qkv + head.key(), head.row, 0.0f, tile,
       head.time);
}

// For row i of the unsharded attention matrix: 1 / (1 - p) where a probability is kept, else 0.
void DropoutFactors(const Head& head, int64_t i, int64_t count, float* factors) {
  const Dropout& dropout = head.attention.dropout;
  const int64_t first =
      ((head.batch * head.attention.total_heads + head.attention.first_head + head.head) *
           head.time + i) * head.time;
  Philox(dropout.key)
      .FillUniform({factors, static_cast<size_t>(count)}, first, dropout.counter, 0.0f, 1.0f);
  const float scale = 1.0f / (1.0f - dropout.probability);
  for (int64_t j = 0; j < count; ++j) {
    factors[j] = factors[j] >= dropout.probability ? scale : 0.0f;
  }
}

// Softmax of one row's first `count` logits in place, the rest of `length` zeroed; returns the
// log-sum-exp.
float SoftmaxRow(float* row, int64_t count, int64_t length) {
  float largest = row[0];
#pragma omp simd reduction(max : largest)
  for (int64_t j = 0; j < count; ++j) largest = std::max(largest, row[j]);
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < count; ++j) {
    row[j] = cpu::Exp(row[j] - largest);
    sum += row[j];
  }
  const float inverse = 1.0f / sum;
  for (int64_t j = 0; j < count; ++j) row[j] *= inverse;
  std::fill(row + count, row + length, 0.0f);
  return largest + std::log(sum);
}

void ForwardHead(const Head& head, const float* qkv, float* y, float* log_sum_exp, float* tile,
                 float* factors) {
  for (int64_t first = 0; first < head.time; first += kTile) {
    const int64_t rows = std::min(kTile, head.time - first), keys = first + rows;
    Logits(head, qkv, first, rows, tile);
    for (int64_t r = 0; r < rows; ++r) {
      float* row = tile + r * head.time;
      log_sum_exp[head.sums() + first + r] = SoftmaxRow(row, first + r + 1, keys);
      if (head.attention.dropout.probability > 0) {
        DropoutFactors(head, first + r, first + r + 1, factors);
        for (int64_t j = 0; j <= first + r; ++j) row[j] *= factors[j];
      }
    }
    Gemm('N', 'N', rows, head.width(), keys, 1.0f, tile, head.time, qkv + head.value(), head.row,
         0.0f, y + head.output() + first * head.y_row(), head.y_row());
  }
}

void BackwardHead(const Head& head, const float* qkv, const float* y, const float* log_sum_exp,
                  const float* dy, float* dqkv, float* tile, float* dtile, float* factors) {
  const bool drop = head.attention.dropout.probability > 0;
  // Tiles from the last to the first: the last touches every key, and overwrites what the others
  // add to.
  for (int64_t first = (head.time - 1) / kTile * kTile; first >= 0; first -= kTile) {
    const int64_t rows = std::min(kTile, head.time - first), keys = first + rows;
    const float beta = keys == head.time ? 0.0f : 1.0f;
    const float* dy_tile = dy + head.output() + first * head.y_row();
    const float* y_tile = y + head.output() + first * head.y_row();
    Logits(head, qkv, first, rows, tile);
    Gemm('N', 'T', rows, keys, head.width(), 1.0f, dy_tile, head.y_row(), qkv + head.value(),
         head.row, 0.0f, dtile, head.time);
    for (int64_t r = 0; r < rows; ++r) {
      float* p = tile + r * head.time;
      float* d = dtile + r * head.time;
      const int64_t count = first + r + 1;
      // sum_j p_j dp_j equals the product of y and dy along the row (FlashAttention, section B.4).
      float product = 0;
#pragma omp simd reduction(+ : product)
      for (int64_t i = 0; i < head.width(); ++i) {
        product += dy_tile[r * head.y_row() + i] * y_tile[r * head.y_row() + i];
      }
      const float lse = log_sum_exp[head.sums() + first + r];
      if (drop) {
        DropoutFactors(head, first + r, count, factors);
        for (int64_t j = 0; j < count; ++j) {
          const float probability = cpu::Exp(p[j] - lse);
          d[j] = probability * (d[j] * factors[j] - product) * head.scale;
          p[j] = probability * factors[j];
        }
      } else {
        for (int64_t j = 0; j < count; ++j) {
          p[j] = cpu::Exp(p[j] - lse);
          d[j] = p[j] * (d[j] - product) * head.scale;
        }
      }
      std::fill(p + count, p + keys, 0.0f);
      std::fill(d + count, d + keys, 0.0f);
    }
    Gemm('T', 'N', keys, head.width(), rows, 1.0f, tile, head.time, dy_tile, head.y_row(), beta,
         dqkv + head.value(), head.row);
    Gemm('N', 'N', rows, head.width(), keys, 1.0f, dtile, head.time, qkv + head.key(), head.row,
         0.0f, dqkv + head.query() + first * head.row, head.row);
    Gemm('T', 'N', keys, head.width(), rows, 1.0f, dtile, head.time,
         qkv + head.query() + first * head.row, head.row, beta, dqkv + head.key(), head.row);
  }
}

// Calls run(head, part) for all (batch, head) pairs, in parallel.
template <typename Function>
void ForHeads(const Attention& attention, const Tensor& qkv, Function&& run) {
  const int64_t time = qkv.shape()[1], row = qkv.shape()[2];
  CHECK_EQ(row, 3 * attention.heads * attention.head_width) << qkv.shape();
  const float scale = 1.0f / std::sqrt(static_cast<float>(attention.head_width));
  ParallelForParts(qkv.shape()[0] * attention.heads, 1,
                   [&](int part, int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) {
                       run(Head{attention, i / attention.heads, i % attention.heads, time, row,
                                scale},
                           part);
                     }
                   });
}

}  // namespace

void CpuKernels::AttentionForward(const Attention& attention, const Tensor& qkv, const Tensor& y,
                                  const Tensor& log_sum_exp) {
  Span span(this);
  const int64_t time = qkv.shape()[1], scratch = (kTile + 1) * time;
  Tensor tiles = Workspace({MaxThreads(), scratch});
  ForHeads(attention, qkv, [&](const Head& head, int part) {
    float* tile = tiles.data<float>() + part * scratch;
    ForwardHead(head, qkv.data<float>(), y.data<float>(), log_sum_exp.data<float>(), tile,
                tile + kTile * time);
  });
}

void CpuKernels::AttentionBackward(const Attention& attention, const Tensor& qkv, const Tensor& y,
                                   const Tensor& log_sum_exp, const Tensor& dy,
                                   const Tensor& dqkv) {
  Span span(this);
  const int64_t time = qkv.shape()[1], scratch = (2 * kTile + 1) * time;
  Tensor tiles = Workspace({MaxThreads(), scratch});
  ForHeads(attention, qkv, [&](const Head& head, int part) {
    float* tile = tiles.data<float>() + part * scratch;
    BackwardHead(head, qkv.data<float>(), y.data<float>(), log_sum_exp.data<float>(),
                 dy.data<float>(), dqkv.data<float>(), tile, tile + kTile * time,
                 tile + 2 * kTile * time);
  });
}

}  // namespace lockstep
