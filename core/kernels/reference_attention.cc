// Causal multi-head self-attention, with the whole matrix of probabilities in memory.

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/philox.h"
#include "core/base/token_order.h"
#include "core/kernels/reference.h"

namespace lockstep::reference {
namespace {

// One row of one head's attention matrix: the keys that the query sees.
struct Row {
  std::vector<int64_t> keys;
  std::vector<double> probability, kept;  // of each of them; kept: 0, or 1 / (1 - p)
  // How far rounding moves a probability, relatively: it is e^(logit - log_sum_exp), and a logit is
  // off by a rounding of the magnitudes of its terms.
  double condition = 1;
  double log_sum_exp = 0, log_sum_exp_magnitude = 0;
};

// Where one head's queries, keys, values and outputs lie. Times count a sample's tokens in the
// order of memory.
struct Head {
  Head(const Attention& of, const Array& data, const TokenOrder& rows, int64_t b, int64_t h)
      : attention(of), qkv(data), order(rows), batch(b), head(h), time(rows.time) {}

  int64_t LeafOf(int64_t t) const { return t / order.leaf_time(); }
  int64_t PlaceOf(int64_t t) const { return t % order.leaf_time(); }
  int64_t PositionOf(int64_t t) const { return order.PositionOf(LeafOf(t), PlaceOf(t)); }
  int64_t RowOf(int64_t t) const { return order.RowOf(LeafOf(t), batch, PlaceOf(t)); }

  int64_t SumAt(int64_t t) const {
    const int64_t sequence = LeafOf(t) * order.samples + batch;
    return (sequence * attention.heads + head) * order.leaf_time() + PlaceOf(t);
  }
  int64_t OutputAt(int64_t t, int64_t d) const {
    return (RowOf(t) * attention.heads + head) * attention.head_width + d;
  }
  // `which`: 0 queries, 1 keys, 2 values. A row has all heads of queries, then those of keys, then
  // those of values.
  int64_t At(int which, int64_t t, int64_t d) const {
    const int64_t key_heads = attention.key_heads == 0 ? attention.heads : attention.key_heads;
    const int64_t group = attention.heads / key_heads;
    const int64_t in_row =
        which == 0 ? head : attention.heads + (which - 1) * key_heads + head / group;
    return (RowOf(t) * (attention.heads + 2 * key_heads) + in_row) * attention.head_width + d;
  }
  double Query(int64_t t, int64_t d) const { return qkv[At(0, t, d)]; }
  double Key(int64_t t, int64_t d) const { return qkv[At(1, t, d)]; }
  double Value(int64_t t, int64_t d) const { return qkv[At(2, t, d)]; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(attention.head_width)); }

  Row MakeRow(int64_t i) const {
    Row row;
    double largest = 0, largest_magnitude = 0;
    const int64_t first_seen = attention.documents.first == nullptr
                                   ? 0
                                   : attention.documents.first[batch * time + PositionOf(i)];
    for (int64_t j = 0; j < time; ++j) {
      if (PositionOf(j) > PositionOf(i) || PositionOf(j) < first_seen) continue;
      double logit = 0, magnitude = 0;
      for (int64_t d = 0; d < attention.head_width; ++d) {
        logit += Query(i, d) * Key(j, d) * scale();
        magnitude += std::abs(Query(i, d) * Key(j, d)) * scale();
      }
      largest = row.keys.empty() ? logit : std::max(largest, logit);
      row.keys.push_back(j);
      row.probability.push_back(logit);
      largest_magnitude = std::max(largest_magnitude, magnitude);
    }
    double sum = 0;
    for (double& p : row.probability) {
      p = std::exp(p - largest);
      sum += p;
    }
    for (double& p : row.probability) p /= sum;
    row.log_sum_exp = largest + std::log(sum);
    row.log_sum_exp_magnitude = 1 + largest_magnitude + std::log(sum);
    row.condition = 1 + 2 * largest_magnitude + std::abs(row.log_sum_exp);

    const Dropout& dropout = attention.dropout;
    const Philox philox(dropout.key);
    const int64_t logical_head = attention.first_head + head;
    for (const int64_t j : row.keys) {
      const int64_t element =
          ((batch * attention.total_heads + logical_head) * time + i) * time + j;
      const bool keep = philox.Uniform(element, dropout.counter) >= dropout.probability;
      row.kept.push_back(keep ? 1 / (1.0 - dropout.probability) : 0);
    }
    return row;
  }

  const Attention& attention;
  const Array& qkv;
  const TokenOrder& order;
  int64_t batch, head, time;
};

template <typename Visit>
void ForHeads(const Attention& attention, const Array& qkv, int64_t leaves, Visit&& visit) {
  const TokenOrder order{
      .samples = qkv.shape[0] / leaves, .time = qkv.shape[1] * leaves, .leaves = leaves};
  for (int64_t b = 0; b < order.samples; ++b) {
    for (int64_t h = 0; h < attention.heads; ++h) visit(Head(attention, qkv, order, b, h));
  }
}

}  // namespace

Attended AttentionForward(const Attention& attention, const Array& qkv, int64_t leaves) {
  const int64_t width = attention.head_width;
  Attended result{.y = Result(qkv.shape.With(2, attention.heads * width)),
                  .log_sum_exp = Result(Shape{qkv.shape[0], attention.heads, qkv.shape[1]})};
  ForHeads(attention, qkv, leaves, [&](const Head& head) {
    for (int64_t i = 0; i < head.time; ++i) {
      const Row row = head.MakeRow(i);
      result.log_sum_exp.value[head.SumAt(i)] = row.log_sum_exp;
      result.log_sum_exp.magnitude[head.SumAt(i)] = row.log_sum_exp_magnitude;
      for (size_t j = 0; j < row.keys.size(); ++j) {
        for (int64_t d = 0; d < width; ++d) {
          result.y.Add(head.OutputAt(i, d),
                       row.probability[j] * row.kept[j] * head.Value(row.keys[j], d),
                       row.condition);
        }
      }
    }
  });
  return result;
}

Result AttentionBackward(const Attention& attention, const Array& qkv, const Array& dy,
                         int64_t leaves) {
  const int64_t width = attention.head_width;
  Result dqkv(qkv.shape);
  ForHeads(attention, qkv, leaves, [&](const Head& head) {
    for (int64_t i = 0; i < head.time; ++i) {
      const Row row = head.MakeRow(i);
      // The gradient of each probability behind and before dropout, and their mean under the row's
      // probabilities, which softmax takes off again.
      std::vector<double> slope(row.keys.size()), slope_magnitude(row.keys.size());
      double mean = 0, mean_magnitude = 0;
      for (size_t j = 0; j < row.keys.size(); ++j) {
        for (int64_t d = 0; d < width; ++d) {
          const double g = dy[head.OutputAt(i, d)], value = head.Value(row.keys[j], d);
          const double weight = row.probability[j] * row.kept[j];
          slope[j] += g * value * row.kept[j];
          slope_magnitude[j] += std::abs(g * value) * row.kept[j];
          dqkv.Add(head.At(2, row.keys[j], d), weight * g, row.condition);
        }
        mean += row.probability[j] * slope[j];
        mean_magnitude += row.probability[j] * slope_magnitude[j];
      }
      for (size_t j = 0; j < row.keys.size(); ++j) {
        const double dlogit = row.probability[j] * (slope[j] - mean) * head.scale();
        const double magnitude =
            row.probability[j] * (slope_magnitude[j] + mean_magnitude) * head.scale();
        for (int64_t d = 0; d < width; ++d) {
          const int64_t query = head.At(0, i, d), key = head.At(1, row.keys[j], d);
          dqkv.value[query] += dlogit * qkv[key];
          dqkv.magnitude[query] += magnitude * row.condition * std::abs(qkv[key]);
          dqkv.value[key] += dlogit * qkv[query];
          dqkv.magnitude[key] += magnitude * row.condition * std::abs(qkv[query]);
        }
      }
    }
  });
  return dqkv;
}

}  // namespace lockstep::reference
