#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/experts.h"
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/cuda/warp_rows.cuh"

namespace lockstep::cuda {
namespace {

// Keeps the division by a sum of scores finite where all of them vanish, as on the CPU.
constexpr float kTiny = 1e-20f;

// The scores of a row, of which all lanes of its warp ask for one at a time.
struct RowScores {
  Array logits;
  int64_t first;  // element of the row's first logit
  bool is_sigmoid;
  float largest = 0, factor = 1, sum = 0;  // of all scores

  __device__ RowScores(const Routing& routing, const Array& all, int64_t row)
      : logits(all),
        first(row * routing.experts),
        is_sigmoid(routing.scores == Routing::Scores::kSigmoid) {
    if (!is_sigmoid) {
      largest = -INFINITY;
      ForColumns<1>(routing.experts,
                    [&](int64_t e) { largest = fmaxf(largest, LoadOne(logits, first + e)); });
      largest = WarpReduce(largest, Larger{});
    }
    float own = 0;
    ForColumns<1>(routing.experts, [&](int64_t e) { own += (*this)(e); });
    sum = WarpReduce(own, Plus{});
    if (!is_sigmoid) {
      factor = 1.0f / sum;
      sum = 1;
    }
  }

  __device__ float operator()(int64_t expert) const {
    const float logit = LoadOne(logits, first + expert);
    return is_sigmoid ? 1.0f / (1.0f + expf(-logit)) : expf(logit - largest) * factor;
  }
};

// An expert and its rank. What is no number ranks last.
struct Ranked {
  float rank;
  int64_t expert;

  __device__ bool IsBefore(const Ranked& other) const {
    return rank > other.rank || (rank == other.rank && expert < other.expert);
  }
};

// The first of the lanes' ones.
__device__ Ranked FirstOfWarp(Ranked first) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const Ranked other = {__shfl_xor_sync(kAllLanes, first.rank, distance),
                          __shfl_xor_sync(kAllLanes, first.expert, distance)};
    if (other.IsBefore(first)) first = other;
  }
  return first;
}

__global__ void RouteKernel(Routing routing, int64_t rows, Array logits, const float* bias,
                            int32_t* chosen, float* weights) {
  const int64_t row = WarpRow(), slots = routing.chosen;
  if (row >= rows) return;
  const RowScores scores(routing, logits, row);
  const int lane = threadIdx.x % kWarp;
  Ranked before = {INFINITY, -1};
  float sum = kTiny;
  for (int64_t slot = 0; slot < slots; ++slot) {
    Ranked best = {-INFINITY, routing.experts};
    ForColumns<1>(routing.experts, [&](int64_t e) {
      const float rank = scores(e) + (bias == nullptr ? 0.0f : bias[e]);
      const Ranked own = {rank == rank ? rank : -INFINITY, e};
      if (before.IsBefore(own) && own.IsBefore(best)) best = own;
    });
    before = FirstOfWarp(best);
    const float score = scores(before.expert);
    sum += score;
    if (lane == 0) {
      chosen[row * slots + slot] = static_cast<int32_t>(before.expert);
      weights[row * slots + slot] = score;
    }
  }
  const float factor = routing.scaling / sum;
  if (lane != 0) return;  // lane 0 wrote the scores
  for (int64_t slot = 0; slot < slots; ++slot) weights[row * slots + slot] *= factor;
}

// With scores s, S the sum of the chosen ones and A that of all: the weight of a slot is
// scaling * s / S, and a normalised score s / A.
__global__ void RouteBackwardKernel(Routing routing, int64_t rows, Array logits,
                                    const int32_t* chosen, const float* dweights,
                                    const float* balance, Array dlogits) {
  const int64_t row = WarpRow(), experts = routing.experts, slots = routing.chosen;
  if (row >= rows) return;
  const RowScores scores(routing, logits, row);
  const int32_t* const own_chosen = chosen + row * slots;
  const float* const own_dweights = dweights + row * slots;
  float of_lane = 0, weighted_of_lane = 0;
  ForColumns<1>(slots, [&](int64_t slot) {
    const float score = scores(own_chosen[slot]);
    of_lane += score;
    weighted_of_lane += own_dweights[slot] * score;
  });
  const float sum = WarpReduce(of_lane, Plus{}) + kTiny;
  const float mean = WarpReduce(weighted_of_lane, Plus{}) / sum;
  float balanced = 0;  // the mean of `balance`, weighted by the normalised scores
  if (balance != nullptr) {
    float products = 0;
    ForColumns<1>(experts, [&](int64_t e) { products += balance[e] * scores(e); });
    balanced = WarpReduce(products, Plus{}) / scores.sum;
  }
  // The gradient of a score.
  const auto slope = [&](int64_t e) {
    float result = balance == nullptr ? 0.0f : (balance[e] - balanced) / scores.sum;
    for (int64_t slot = 0; slot < slots; ++slot) {
      if (own_chosen[slot] == e) result += routing.scaling * (own_dweights[slot] - mean) / sum;
    }
    return result;
  };
  float products = 0;
  if (!scores.is_sigmoid) {
    ForColumns<1>(experts, [&](int64_t e) { products += slope(e) * scores(e); });
    products = WarpReduce(products, Plus{});
  }
  ForColumns<1>(experts, [&](int64_t e) {
    const float score = scores(e);
    const float gradient =
        scores.is_sigmoid ? slope(e) * score * (1.0f - score) : score * (slope(e) - products);
    StoreOne(dlogits, row * experts + e, gradient);
  });
}

// kCount elements of sums a thread.
template <int kCount>
__global__ void CombineRowsKernel(CombinedRows c, Array x, Array residual, Array sums) {
  const int64_t at = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kCount;
  if (at >= c.rows * c.width) return;
  const int64_t row = at / c.width, column = at % c.width;
  float sum[kCount] = {};
  for (int64_t slot = row * c.slots; slot < (row + 1) * c.slots; ++slot) {
    if (c.places[slot] < 0) continue;
    const float weight = c.weights == nullptr ? 1.0f : c.weights[slot];
    float in[kCount];
    Load(x, c.places[slot] * c.width + column, in);
    for (int i = 0; i < kCount; ++i) sum[i] += weight * in[i];
  }
  if (residual.data != nullptr) {
    float add[kCount];
    Load(residual, at, add);
    for (int i = 0; i < kCount; ++i) sum[i] += add[i];
  }
  Store(sums, at, sum);
}

// A warp has a slot.
template <int kCount>
__global__ void CombineRowsBackwardKernel(CombinedRows c, Array dsums, Array x, Array dx,
                                          float* dweights) {
  const int64_t slot = WarpRow();
  if (slot >= c.rows * c.slots) return;
  const int64_t place = c.places[slot], row = slot / c.slots;
  float product = 0;
  if (place >= 0) {
    const float weight = c.weights == nullptr ? 1.0f : c.weights[slot];
    ForColumns<kCount>(c.width, [&](int64_t column) {
      float slopes[kCount], in[kCount];
      Load(dsums, row * c.width + column, slopes);
      Load(x, place * c.width + column, in);
      for (int i = 0; i < kCount; ++i) {
        product += slopes[i] * in[i];
        slopes[i] *= weight;
      }
      Store(dx, place * c.width + column, slopes);
    });
  }
  product = WarpReduce(product, Plus{});
  if (dweights != nullptr && threadIdx.x % kWarp == 0) dweights[slot] = product;
}

}  // namespace

cudaError_t Route(cudaStream_t stream, Routing routing, int64_t rows, Array logits,
                  const float* bias, int32_t* chosen, float* weights) {
  if (rows == 0) return cudaSuccess;
  RouteKernel<<<BlocksFor(rows, kRowsOfBlock), kRowsOfBlock * kWarp, 0, stream>>>(
      routing, rows, logits, bias, chosen, weights);
  return cudaGetLastError();
}

cudaError_t RouteBackward(cudaStream_t stream, Routing routing, int64_t rows, Array logits,
                          const int32_t* chosen, const float* dweights, const float* balance,
                          Array dlogits) {
  if (rows == 0) return cudaSuccess;
  RouteBackwardKernel<<<BlocksFor(rows, kRowsOfBlock), kRowsOfBlock * kWarp, 0, stream>>>(
      routing, rows, logits, chosen, dweights, balance, dlogits);
  return cudaGetLastError();
}

cudaError_t CombineRows(cudaStream_t stream, CombinedRows combined, Array x, Array residual,
                        Array sums) {
  const int64_t elements = combined.rows * combined.width;
  if (elements == 0) return cudaSuccess;
  const int count = combined.width % kVector == 0 ? kVector : 1;
  const auto kernel = count == 1 ? CombineRowsKernel<1> : CombineRowsKernel<kVector>;
  kernel<<<BlocksFor(elements, kThreads * count), kThreads, 0, stream>>>(combined, x, residual,
                                                                         sums);
  return cudaGetLastError();
}

cudaError_t CombineRowsBackward(cudaStream_t stream, CombinedRows combined, Array dsums, Array x,
                                Array dx, float* dweights) {
  const int64_t slots = combined.rows * combined.slots;
  if (slots == 0) return cudaSuccess;
  const auto kernel = combined.width % kVector == 0 ? CombineRowsBackwardKernel<kVector>
                                                    : CombineRowsBackwardKernel<1>;
  kernel<<<BlocksFor(slots, kRowsOfBlock), kRowsOfBlock * kWarp, 0, stream>>>(combined, dsums, x,
                                                                              dx, dweights);
  return cudaGetLastError();
}

}  // namespace lockstep::cuda
