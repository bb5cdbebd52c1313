#include "core/data/markov_source.h"

#include <algorithm>  // std::fill, std::max, std::min, std::upper_bound
#include <array>
#include <cmath>  // std::abs
#include <cstddef>
#include <numeric>  // std::iota
#include <utility>  // std::swap

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/elementary.h"
#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

constexpr uint64_t kOne = uint64_t{1} << 32;  // probability 1
constexpr int64_t kMaxContexts = int64_t{1} << 18;
constexpr int64_t kMaxProbabilities = int64_t{1} << 24;

// Some dozens of iterations do, unless there is one successor and hardly any smoothing.
constexpr int kMaxIterations = 10000;
// Total change in probability, when the iteration has settled: a few units of rounding.
constexpr double kStillness = 2e-15;

double Surprise(double probability) {
  return probability > 0 ? -probability * Log(probability) : 0;
}

absl::Status Check(const MarkovSourceOptions& options) {
  const auto error = [](const auto&... parts) {
    return InvalidArgument("the markov source's ", parts...);
  };
  if (options.vocabulary < 2 || options.vocabulary > kMaxContexts) {
    return error("vocabulary must be between 2 and ", kMaxContexts, ", but is ",
                 options.vocabulary);
  }
  if (options.order < 0) return error("order must be at least 0, but is ", options.order);
  if (options.successors < 1 || options.successors > options.vocabulary) {
    return error("successors must be between 1 and its vocabulary, ", options.vocabulary,
                 ", but are ", options.successors);
  }
  if (!(options.smoothing > 0 && options.smoothing <= 1)) {
    return error("smoothing must be above 0 and at most 1, but is ", options.smoothing);
  }
  int64_t contexts = 1;
  for (int64_t i = 0; i < options.order && contexts <= kMaxContexts; ++i) {
    contexts *= options.vocabulary;
  }
  if (contexts > kMaxContexts || contexts * options.vocabulary > kMaxProbabilities) {
    return error("table is too large: vocabulary ^ order may be ", kMaxContexts,
                 " and vocabulary ^ (order + 1) ", kMaxProbabilities, " at most; ",
                 options.vocabulary, " and ", options.order, " make more");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MarkovSource> MarkovSource::Create(const MarkovSourceOptions& options) {
  if (absl::Status status = Check(options); !status.ok()) return status;
  MarkovSource source(options);
  if (!source.settled_) {
    return InvalidArgument("the markov source's stationary distribution was not found in ",
                           kMaxIterations, " iterations; with more smoothing than ",
                           options.smoothing, " or more successors than ", options.successors,
                           " it mixes faster");
  }
  return source;
}

MarkovSource::MarkovSource(const MarkovSourceOptions& options) : options_(options) {
  for (int64_t i = 0; i < options.order; ++i) contexts_ *= options.vocabulary;
  DrawTransitions();
  ComputeStationary();
  // Chain rule: H(X_{n+1} | X_1..X_n) = H(X_1..X_{n+1}) - H(X_1..X_n).
  for (int64_t known = 0; known < options.order; ++known) {
    conditional_entropy_.push_back(BlockEntropy(known + 1) - BlockEntropy(known));
  }
  double rate = 0;
  for (int64_t context = 0; context < contexts_; ++context) {
    double entropy = 0;
    for (int64_t token = 0; token < options.vocabulary; ++token) {
      entropy += Surprise(Probability(context, token));
    }
    rate += stationary_[context] * entropy;
  }
  conditional_entropy_.push_back(rate);
}

void MarkovSource::DrawTransitions() {
  const int64_t vocabulary = options_.vocabulary;
  const Philox random(
      PhiloxKey(options_.seed, "markov", absl::StrCat("transitions.", options_.source)));
  std::vector<int32_t> tokens(vocabulary);
  std::vector<double> weights(options_.successors);
  std::vector<uint64_t> row(vocabulary);
  cumulative_.reserve(contexts_ * vocabulary);
  for (int64_t context = 0; context < contexts_; ++context) {
    // Which tokens are likely: the start of a Fisher-Yates shuffle. How likely: weights between
    // 0.25 and 1.25, so that there is a best guess and no certain one.
    std::iota(tokens.begin(), tokens.end(), 0);
    double total = 0;
    for (int64_t i = 0; i < options_.successors; ++i) {
      const std::array<uint32_t, 4> words =
          random.Block(static_cast<uint64_t>(i), static_cast<uint64_t>(context));
      const uint64_t rest = static_cast<uint64_t>(vocabulary - i);
      std::swap(tokens[i], tokens[i + static_cast<int64_t>(words[0] * rest >> 32)]);
      weights[i] = 0.25 + words[1] * 0x1p-32;
      total += weights[i];
    }
    // In units of 2^-32, rounded down; the first likely token gets what rounding leaves over.
    const double smoothing = options_.smoothing * static_cast<double>(kOne);
    const uint64_t even =
        std::max(uint64_t{1}, static_cast<uint64_t>(smoothing / static_cast<double>(vocabulary)));
    std::fill(row.begin(), row.end(), even);
    const double likely = static_cast<double>(kOne - even * static_cast<uint64_t>(vocabulary));
    uint64_t given = even * static_cast<uint64_t>(vocabulary);
    for (int64_t i = 0; i < options_.successors; ++i) {
      // Not more than is left: the quotient may round up when there is one successor.
      const uint64_t share =
          std::min(static_cast<uint64_t>(likely * (weights[i] / total)), kOne - given);
      row[tokens[i]] += share;
      given += share;
    }
    row[tokens[0]] += kOne - given;
    uint64_t sum = 0;
    for (uint64_t units : row) cumulative_.push_back(sum += units);
    DCHECK_EQ(sum, kOne);
  }
}

double MarkovSource::Probability(int64_t context, int64_t token) const {
  const uint64_t* row = cumulative_.data() + context * options_.vocabulary;
  const uint64_t below = token == 0 ? 0 : row[token - 1];
  return static_cast<double>(row[token] - below) / static_cast<double>(kOne);
}

// The context after one more token: the oldest token falls out.
int64_t MarkovSource::Next(int64_t context, int64_t token) const {
  return (context * options_.vocabulary + token) % contexts_;
}

void MarkovSource::ComputeStationary() {
  stationary_.assign(contexts_, 1.0 / static_cast<double>(contexts_));
  std::vector<double> next(contexts_);
  for (int iteration = 0; iteration < kMaxIterations; ++iteration) {
    std::fill(next.begin(), next.end(), 0.0);
    for (int64_t context = 0; context < contexts_; ++context) {
      for (int64_t token = 0; token < options_.vocabulary; ++token) {
        next[Next(context, token)] += stationary_[context] * Probability(context, token);
      }
    }
    double total = 0;
    for (double probability : next) total += probability;
    double change = 0;
    for (int64_t context = 0; context < contexts_; ++context) {
      next[context] /= total;  // rounding must not add up
      change += std::abs(next[context] - stationary_[context]);
    }
    std::swap(next, stationary_);
    settled_ = change < kStillness;
    if (settled_) break;
  }
  double sum = 0;
  for (double probability : stationary_) stationary_cumulative_.push_back(sum += probability);
}

// H(X_1, ..., X_length) for length <= order: contexts that agree in their newest tokens are one
// block.
double MarkovSource::BlockEntropy(int64_t length) const {
  int64_t blocks = 1;
  for (int64_t i = 0; i < length; ++i) blocks *= options_.vocabulary;
  std::vector<double> probability(blocks);
  for (int64_t context = 0; context < contexts_; ++context) {
    probability[context % blocks] += stationary_[context];
  }
  double entropy = 0;
  for (double p : probability) entropy += Surprise(p);
  return entropy;
}

double MarkovSource::entropy_rate() const { return conditional_entropy_.back(); }

double MarkovSource::ConditionalEntropy(int64_t known) const {
  CHECK_GE(known, 0);
  return conditional_entropy_[std::min(known, options_.order)];
}

double MarkovSource::LossFloor(int64_t context) const {
  CHECK_GE(context, 1);
  double sum = 0;
  for (int64_t known = 1; known <= context; ++known) sum += ConditionalEntropy(known);
  return sum / static_cast<double>(context);
}

void MarkovSource::Write(const Philox& random, int64_t index, absl::Span<int32_t> tokens) const {
  const int64_t length = static_cast<int64_t>(tokens.size());
  const int64_t vocabulary = options_.vocabulary;
  const uint64_t text = static_cast<uint64_t>(index);
  // Words 0 and 1 choose the first context, word 4 + i the token at place order + i.
  const std::array<uint32_t, 4> first = random.Block(0, text);
  const double place = (first[0] + first[1] * 0x1p-32) * 0x1p-32 * stationary_cumulative_.back();
  int64_t context =
      std::upper_bound(stationary_cumulative_.begin(), stationary_cumulative_.end(), place) -
      stationary_cumulative_.begin();
  context = std::min(context, contexts_ - 1);  // where `place` rounds up to the very end
  int64_t oldest_first = contexts_;
  for (int64_t i = 0; i < std::min(length, options_.order); ++i) {
    oldest_first /= vocabulary;
    tokens[i] = static_cast<int32_t>(context / oldest_first % vocabulary);
  }
  std::vector<uint32_t> bits(std::max<int64_t>(length - options_.order, 0));
  random.FillBits(bits, 4, text);
  for (size_t i = 0; i < bits.size(); ++i) {
    const uint64_t* row = cumulative_.data() + context * vocabulary;
    const int64_t token = std::upper_bound(row, row + vocabulary, uint64_t{bits[i]}) - row;
    tokens[static_cast<size_t>(options_.order) + i] = static_cast<int32_t>(token);
    context = Next(context, token);
  }
}

}  // namespace lockstep
