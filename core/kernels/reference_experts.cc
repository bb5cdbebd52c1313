// Mixtures of experts.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/kernels/reference.h"

namespace lockstep::reference {
namespace {

bool IsSigmoid(const Routing& routing) { return routing.scores == Routing::Scores::kSigmoid; }

// The scores of row `row`: sigmoids, or the softmax.
std::vector<double> ScoresOf(const Routing& routing, const Array& logits, int64_t row) {
  const auto first = logits.value.begin() + row * routing.experts;
  std::vector<double> scores(first, first + routing.experts);
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) {
    score = IsSigmoid(routing) ? 1 / (1 + std::exp(-score)) : std::exp(score - largest);
    sum += score;
  }
  if (IsSigmoid(routing)) return scores;
  for (double& score : scores) score /= sum;
  return scores;
}

}  // namespace

Routed Route(const Routing& routing, const Array& logits, const Array& bias) {
  const int64_t rows = logits.shape.rows(), k = routing.chosen;
  Routed routed;
  routed.weights = Result(Shape{rows, k});
  routed.margin = std::numeric_limits<double>::infinity();
  for (int64_t row = 0; row < rows; ++row) {
    const std::vector<double> scores = ScoresOf(routing, logits, row);
    const auto rank = [&](int32_t e) { return scores[e] + (bias.defined() ? bias[e] : 0); };
    std::vector<int32_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return rank(a) > rank(b); });
    double sum = 0;
    for (int64_t slot = 0; slot < k; ++slot) {
      sum += scores[order[slot]];
      if (slot + 1 < routing.experts) {
        routed.margin = std::min(routed.margin, rank(order[slot]) - rank(order[slot + 1]));
      }
    }
    for (int64_t slot = 0; slot < k; ++slot) {
      routed.chosen.push_back(order[slot]);
      routed.weights.Add(row * k + slot, routing.scaling * scores[order[slot]] / sum);
    }
  }
  return routed;
}

Array NormalizedScores(const Routing& routing, const Array& logits) {
  Array all(logits.shape);
  for (int64_t row = 0; row < logits.shape.rows(); ++row) {
    const std::vector<double> scores = ScoresOf(routing, logits, row);
    const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
    for (size_t e = 0; e < scores.size(); ++e) {
      all.value[row * routing.experts + e] = scores[e] / sum;
    }
  }
  return all;
}

Result RouteBackward(const Routing& routing, const Array& logits,
                     const std::vector<int32_t>& chosen, const Array& dweights,
                     const Array& balance) {
  const int64_t experts = routing.experts, k = routing.chosen;
  Result dlogits(logits.shape);
  for (int64_t row = 0; row < logits.shape.rows(); ++row) {
    const std::vector<double> s = ScoresOf(routing, logits, row);
    const double all = std::accumulate(s.begin(), s.end(), 0.0);
    double sum = 0;
    for (int64_t slot = 0; slot < k; ++slot) sum += s[chosen[row * k + slot]];
    // d weight(slot) / d score(e), summed over what each weight is worth.
    Result dscores(Shape{experts});
    for (int64_t slot = 0; slot < k; ++slot) {
      const double dy = routing.scaling * dweights[row * k + slot];
      const int32_t own = chosen[row * k + slot];
      dscores.Add(own, dy / sum);
      for (int64_t other = 0; other < k; ++other) {
        dscores.Add(chosen[row * k + other], -dy * s[own] / (sum * sum));
      }
    }
    if (balance.defined()) {
      for (int64_t own = 0; own < experts; ++own) {
        dscores.Add(own, balance[own] / all);
        for (int64_t e = 0; e < experts; ++e) {
          dscores.Add(e, -balance[own] * s[own] / (all * all));
        }
      }
    }
    // d score(e) / d logit(i). Magnitudes are those of each term, also where the slopes' terms
    // cancel.
    const auto add = [&](int64_t i, int64_t e, double factor) {
      dlogits.value[row * experts + i] += dscores[e] * factor;
      dlogits.magnitude[row * experts + i] += dscores.magnitude[e] * std::abs(factor);
    };
    for (int64_t e = 0; e < experts; ++e) {
      add(e, e, s[e]);
      for (int64_t i = 0; i < experts; ++i) {
        if (IsSigmoid(routing) && i != e) continue;
        add(i, e, -s[e] * s[i]);
      }
    }
  }
  return dlogits;
}

Result CombineRows(const Array& x, const std::vector<int32_t>& places, const Array& weights,
                   const Array& residual, int64_t rows) {
  const int64_t width = x.shape[-1], k = static_cast<int64_t>(places.size()) / rows;
  Result sums(Shape{rows, width});
  for (int64_t slot = 0; slot < rows * k; ++slot) {
    if (places[slot] < 0) continue;
    for (int64_t i = 0; i < width; ++i) {
      sums.Add(slot / k * width + i,
               (weights.defined() ? weights[slot] : 1) * x[places[slot] * width + i]);
    }
  }
  if (residual.defined()) sums.Add(residual);
  return sums;
}

CombineGradients CombineRowsBackward(const Array& dsums, const Array& x,
                                     const std::vector<int32_t>& places, const Array& weights) {
  const int64_t width = x.shape[-1], rows = dsums.shape.rows();
  const int64_t k = static_cast<int64_t>(places.size()) / rows;
  CombineGradients gradients = {Result(x.shape), Result(Shape{rows, k})};
  for (int64_t slot = 0; slot < rows * k; ++slot) {
    if (places[slot] < 0) continue;
    for (int64_t i = 0; i < width; ++i) {
      const int64_t at = places[slot] * width + i;
      const double slope = dsums[slot / k * width + i];
      gradients.dx.Add(at, weights[slot] * slope);
      gradients.dweights.Add(slot, slope * x[at]);
    }
  }
  return gradients;
}

}  // namespace lockstep::reference
