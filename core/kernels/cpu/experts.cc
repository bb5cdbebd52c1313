// Mixtures of experts: which rows go to which experts, and the way back.

#include <algorithm>
#include <vector>

#include "core/base/parallel.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/float_elements.h"
#include "core/kernels/cpu/row_sums.h"
#include "core/kernels/cpu/span.h"
#include "core/kernels/cpu/vector_math.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

using cpu::FloatInput;
using cpu::FloatOutput;

constexpr int64_t kGrain = 1 << 12;  // elements below which a fork does not pay

// Keeps the division by a sum of scores finite where all of them vanish, as DeepSeek-V3's code has
// it.
constexpr float kTiny = 1e-20f;

int64_t RowsTogether(int64_t elements) { return std::max<int64_t>(1, kGrain / elements); }

// The scores of one row from its logits, and their sum.
float ScoreRow(const Routing& routing, const float* logits, float* scores) {
  const int64_t experts = routing.experts;
  if (routing.scores == Routing::Scores::kSigmoid) {
    return cpu::SumRow(experts, [=](int64_t i) { return scores[i] = cpu::Sigmoid(logits[i]); });
  }
  const float largest = cpu::LargestOfRow(logits, experts);
  const float sum =
      cpu::SumRow(experts, [=](int64_t i) { return scores[i] = cpu::Exp(logits[i] - largest); });
  for (int64_t i = 0; i < experts; ++i) scores[i] /= sum;
  return 1;
}

float SumOfChosen(const Routing& routing, const float* scores, const int32_t* chosen) {
  float sum = kTiny;
  for (int64_t slot = 0; slot < routing.chosen; ++slot) sum += scores[chosen[slot]];
  return sum;
}

// The experts of largest rank, in order; of equal ranks, and of such that are no numbers, the lower
// index first. Uses up `is_free`.
void ChooseLargest(const Routing& routing, const float* ranks, std::vector<char>& is_free,
                   int32_t* chosen) {
  std::fill(is_free.begin(), is_free.end(), 1);
  for (int64_t slot = 0; slot < routing.chosen; ++slot) {
    int64_t best = -1;
    for (int64_t expert = 0; expert < routing.experts; ++expert) {
      if (is_free[expert] && (best < 0 || ranks[expert] > ranks[best])) best = expert;
    }
    is_free[best] = 0;
    chosen[slot] = static_cast<int32_t>(best);
  }
}

void CheckRouting(const Routing& routing, const Tensor& logits, const Tensor& chosen) {
  CHECK(routing.chosen >= 1 && routing.chosen <= routing.experts)
      << routing.chosen << " of " << routing.experts << " experts";
  CHECK_EQ(logits.shape()[-1], routing.experts);
  CHECK(chosen.shape() == Shape({logits.shape().rows(), routing.chosen})) << chosen.shape();
}

}  // namespace

void CpuKernels::Route(const Routing& routing, const Tensor& logits, const Tensor& bias,
                       const Tensor& chosen, const Tensor& weights) {
  Span span(this, {logits, bias}, {chosen, weights});
  CheckRouting(routing, logits, chosen);
  const int64_t experts = routing.experts, slots = routing.chosen;
  const float* added = bias.defined() ? bias.data<float>() : nullptr;
  ParallelFor(logits.shape().rows(), RowsTogether(experts), [&](int64_t begin, int64_t end) {
    FloatInput input(logits, experts);
    cpu::FloatBuffer scores(experts), ranks(experts);
    std::vector<char> is_free(static_cast<size_t>(experts));
    for (int64_t row = begin; row < end; ++row) {
      ScoreRow(routing, input.Load(row * experts, experts), scores.data());
      for (int64_t i = 0; i < experts; ++i) {
        ranks.data()[i] = added == nullptr ? scores.data()[i] : scores.data()[i] + added[i];
      }
      int32_t* own = chosen.data<int32_t>() + row * slots;
      ChooseLargest(routing, ranks.data(), is_free, own);
      const float factor = routing.scaling / SumOfChosen(routing, scores.data(), own);
      for (int64_t slot = 0; slot < slots; ++slot) {
        weights.data<float>()[row * slots + slot] = scores.data()[own[slot]] * factor;
      }
    }
  });
}

void CpuKernels::RouteBackward(const Routing& routing, const Tensor& logits, const Tensor& chosen,
                               const Tensor& dweights, const Tensor& balance,
                               const Tensor& dlogits) {
  Span span(this, {logits, chosen, dweights, balance}, {dlogits});
  CheckRouting(routing, logits, chosen);
  const int64_t experts = routing.experts, slots = routing.chosen;
  const float* even = balance.defined() ? balance.data<float>() : nullptr;
  ParallelFor(logits.shape().rows(), RowsTogether(experts), [&](int64_t begin, int64_t end) {
    FloatInput input(logits, experts);
    FloatOutput output(dlogits, experts);
    cpu::FloatBuffer score_buffer(experts), slope_buffer(experts);
    float* scores = score_buffer.data();
    float* slopes = slope_buffer.data();  // gradients of the scores
    for (int64_t row = begin; row < end; ++row) {
      const float sum = ScoreRow(routing, input.Load(row * experts, experts), scores) + kTiny;
      // A normalised score is a score by the sum of all; a softmax's already is one.
      float mean = 0;
      if (even != nullptr) {
        mean = cpu::SumRow(experts, [=](int64_t i) { return even[i] * scores[i]; }) / sum;
      }
      for (int64_t i = 0; i < experts; ++i) {
        slopes[i] = even == nullptr ? 0.0f : (even[i] - mean) / sum;
      }
      const int32_t* own = chosen.data<int32_t>() + row * slots;
      const float* dweight = dweights.data<float>() + row * slots;
      const float of_chosen = SumOfChosen(routing, scores, own);
      float weighted = 0;
      for (int64_t slot = 0; slot < slots; ++slot) {
        weighted += dweight[slot] * (scores[own[slot]] / of_chosen);
      }
      const float factor = routing.scaling / of_chosen;
      for (int64_t slot = 0; slot < slots; ++slot) {
        slopes[own[slot]] += factor * (dweight[slot] - weighted);
      }
      float* out = output.Open(row * experts, experts);
      if (routing.scores == Routing::Scores::kSigmoid) {
        for (int64_t i = 0; i < experts; ++i) out[i] = slopes[i] * scores[i] * (1 - scores[i]);
      } else {
        const float all = cpu::SumRow(experts, [=](int64_t i) { return slopes[i] * scores[i]; });
        for (int64_t i = 0; i < experts; ++i) out[i] = scores[i] * (slopes[i] - all);
      }
      output.Close();
    }
  });
}

void CpuKernels::CombineRows(const Tensor& x, const Tensor& places, const Tensor& weights,
                             const Tensor& residual, const Tensor& sums) {
  Span span(this, {x, places, weights, residual}, {sums});
  const int64_t width = sums.shape()[-1], rows = sums.shape().rows(),
                slots = places.elements() / std::max<int64_t>(1, rows);
  CHECK(x.shape()[-1] == width && places.elements() == rows * slots)
      << x.shape() << ", " << places.shape() << ", " << sums.shape();
  ParallelFor(rows, RowsTogether(width), [&](int64_t begin, int64_t end) {
    FloatInput input(x, width), addend(residual, width);
    FloatOutput output(sums, width);
    for (int64_t row = begin; row < end; ++row) {
      float* out = output.Open(row * width, width);
      std::fill_n(out, width, 0.0f);
      for (int64_t slot = row * slots; slot < (row + 1) * slots; ++slot) {
        const int64_t place = places.data<int32_t>()[slot];
        if (place < 0) continue;
        const float* in = input.Load(place * width, width);
        const float weight = weights.defined() ? weights.data<float>()[slot] : 1.0f;
#pragma omp simd
        for (int64_t i = 0; i < width; ++i) out[i] += weight * in[i];
      }
      if (residual.defined()) {
        const float* in = addend.Load(row * width, width);
#pragma omp simd
        for (int64_t i = 0; i < width; ++i) out[i] += in[i];
      }
      output.Close();
    }
  });
}

void CpuKernels::CombineRowsBackward(const Tensor& dsums, const Tensor& x, const Tensor& places,
                                     const Tensor& weights, const Tensor& dx,
                                     const Tensor& dweights) {
  Span span(this, {dsums, x, places, weights}, {dx, dweights});
  const int64_t width = dsums.shape()[-1], rows = dsums.shape().rows(),
                slots = places.elements() / std::max<int64_t>(1, rows);
  CHECK(x.shape()[-1] == width && places.elements() == rows * slots)
      << x.shape() << ", " << places.shape() << ", " << dsums.shape();
  ParallelFor(rows, RowsTogether(width), [&](int64_t begin, int64_t end) {
    FloatInput slopes(dsums, width), values(x, width);
    FloatOutput output(dx, width);
    for (int64_t row = begin; row < end; ++row) {
      const float* slope = slopes.Load(row * width, width);
      for (int64_t slot = row * slots; slot < (row + 1) * slots; ++slot) {
        const int64_t place = places.data<int32_t>()[slot];
        float& dweight = dweights.data<float>()[slot];
        dweight = 0;
        if (place < 0) continue;
        const float* value = values.Load(place * width, width);
        dweight = cpu::SumRow(width, [=](int64_t i) { return slope[i] * value[i]; });
        const float weight = weights.data<float>()[slot];
        float* out = output.Open(place * width, width);
#pragma omp simd
        for (int64_t i = 0; i < width; ++i) out[i] = weight * slope[i];
        output.Close();
      }
    }
  });
}

}  // namespace lockstep
