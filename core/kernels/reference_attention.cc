// Causal multi-head self-attention, with the whole matrix of probabilities in memory.

#include <algorithm>
#include <cmath>

#include "core/base/philox.h"
#include "core/kernels/reference.h"

namespace lockstep::reference {
namespace {

// One row of one head's attention matrix, keys 0 .. i.
struct Row {
  std::vector<double> probability, kept;  // kept: 0, or 1 / (1 - p)
  // How far rounding moves a probability, relatively: it is e^(logit - log_sum_exp), and a logit is
  // off by a rounding of the magnitudes of its terms.
  double condition = 1;
  double log_sum_exp = 0, log_sum_exp_magnitude = 0;
};

// Where one head's queries, keys, values and outputs lie.
struct Head {
  Head(const Attention& of, const Array& data, int64_t b, int64_t h)
      : attention(of), qkv(data), batch(b), head(h), time(data.shape[1]) {}

  int64_t OutputAt(int64_t t, int64_t d) const {
    return (batch * time + t) * attention.heads * attention.head_width +
           head * attention.head_width + d;
  }
  // `which`: 0 queries, 1 keys, 2 values.
  int64_t At(int which, int64_t t, int64_t d) const {
    return ((batch * time + t) * 3 + which) * attention.heads * attention.head_width +
           head * attention.head_width + d;
  }
  double Query(int64_t t, int64_t d) const { return qkv[At(0, t, d)]; }
  double Key(int64_t t, int64_t d) const { return qkv[At(1, t, d)]; }
  double Value(int64_t t, int64_t d) const { return qkv[At(2, t, d)]; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(attention.head_width)); }

  Row MakeRow(int64_t i) const {
    Row row;
    double largest = 0, largest_magnitude = 0;
    for (int64_t j = 0; j <= i; ++j) {
      double logit = 0, magnitude = 0;
      for (int64_t d = 0; d < attention.head_width; ++d) {
        logit += Query(i, d) * Key(j, d) * scale();
        magnitude += std::abs(Query(i, d) * Key(j, d)) * scale();
      }
      row.probability.push_back(logit);
      largest = j == 0 ? logit : std::max(largest, logit);
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
    for (int64_t j = 0; j <= i; ++j) {
      const int64_t element =
          ((batch * attention.total_heads + logical_head) * time + i) * time + j;
      const bool keep = philox.Uniform(element, dropout.counter) >= dropout.probability;
      row.kept.push_back(keep ? 1 / (1.0 - dropout.probability) : 0);
    }
    return row;
  }

  const Attention& attention;
  const Array& qkv;
  int64_t batch, head, time;
};

template <typename Visit>
void ForHeads(const Attention& attention, const Array& qkv, Visit&& visit) {
  for (int64_t b = 0; b < qkv.shape[0]; ++b) {
    for (int64_t h = 0; h < attention.heads; ++h) visit(Head(attention, qkv, b, h));
  }
}

}  // namespace

Attended AttentionForward(const Attention& attention, const Array& qkv) {
  const int64_t batch = qkv.shape[0], time = qkv.shape[1], width = attention.head_width;
  Attended result{.y = Result(Shape{batch, time, attention.heads * width}),
                  .log_sum_exp = Result(Shape{batch, attention.heads, time})};
  ForHeads(attention, qkv, [&](const Head& head) {
    for (int64_t i = 0; i < time; ++i) {
      const Row row = head.MakeRow(i);
      const int64_t at = (head.batch * attention.heads + head.head) * time + i;
      result.log_sum_exp.value[at] = row.log_sum_exp;
      result.log_sum_exp.magnitude[at] = row.log_sum_exp_magnitude;
      for (int64_t j = 0; j <= i; ++j) {
        for (int64_t d = 0; d < width; ++d) {
          result.y.Add(head.OutputAt(i, d), row.probability[j] * row.kept[j] * head.Value(j, d),
                       row.condition);
        }
      }
    }
  });
  return result;
}

Result AttentionBackward(const Attention& attention, const Array& qkv, const Array& dy) {
  const int64_t time = qkv.shape[1], width = attention.head_width;
  Result dqkv(qkv.shape);
  ForHeads(attention, qkv, [&](const Head& head) {
    for (int64_t i = 0; i < time; ++i) {
      const Row row = head.MakeRow(i);
      // The gradient of each probability behind and before dropout, and their mean under the row's
      // probabilities, which softmax takes off again.
      std::vector<double> slope(i + 1), slope_magnitude(i + 1);
      double mean = 0, mean_magnitude = 0;
      for (int64_t j = 0; j <= i; ++j) {
        for (int64_t d = 0; d < width; ++d) {
          const double g = dy[head.OutputAt(i, d)];
          const double weight = row.probability[j] * row.kept[j];
          slope[j] += g * head.Value(j, d) * row.kept[j];
          slope_magnitude[j] += std::abs(g * head.Value(j, d)) * row.kept[j];
          dqkv.Add(head.At(2, j, d), weight * g, row.condition);
        }
        mean += row.probability[j] * slope[j];
        mean_magnitude += row.probability[j] * slope_magnitude[j];
      }
      for (int64_t j = 0; j <= i; ++j) {
        const double dlogit = row.probability[j] * (slope[j] - mean) * head.scale();
        const double magnitude =
            row.probability[j] * (slope_magnitude[j] + mean_magnitude) * head.scale();
        for (int64_t d = 0; d < width; ++d) {
          const int64_t query = head.At(0, i, d), key = head.At(1, j, d);
          dqkv.value[query] += dlogit * head.Key(j, d);
          dqkv.magnitude[query] += magnitude * row.condition * std::abs(head.Key(j, d));
          dqkv.value[key] += dlogit * head.Query(i, d);
          dqkv.magnitude[key] += magnitude * row.condition * std::abs(head.Query(i, d));
        }
      }
    }
  });
  return dqkv;
}

}  // namespace lockstep::reference
