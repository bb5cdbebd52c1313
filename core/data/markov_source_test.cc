#include "core/data/markov_source.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

MarkovSource Make(const MarkovSourceOptions& options) {
  absl::StatusOr<MarkovSource> source = MarkovSource::Create(options);
  EXPECT_TRUE(source.ok()) << source.status();
  return *std::move(source);
}

// The stationary distribution as the solution of pi (P - I) = 0, sum pi = 1, by elimination with
// pivoting: another way than power iteration.
std::vector<double> SolveStationary(const MarkovSource& source) {
  const int64_t n = source.contexts();
  const int64_t vocabulary = source.options().vocabulary;
  std::vector<std::vector<double>> a(n, std::vector<double>(n + 1));
  for (int64_t from = 0; from < n; ++from) {
    for (int64_t token = 0; token < vocabulary; ++token) {
      a[(from * vocabulary + token) % n][from] += source.Probability(from, token);
    }
    a[from][from] -= 1;
  }
  a[n - 1].assign(n + 1, 1.0);  // one equation is redundant: the sum takes its place
  for (int64_t column = 0; column < n; ++column) {
    int64_t pivot = column;
    for (int64_t row = column; row < n; ++row) {
      if (std::abs(a[row][column]) > std::abs(a[pivot][column])) pivot = row;
    }
    std::swap(a[column], a[pivot]);
    for (int64_t row = 0; row < n; ++row) {
      if (row == column || a[row][column] == 0) continue;
      const double factor = a[row][column] / a[column][column];
      for (int64_t i = column; i <= n; ++i) a[row][i] -= factor * a[column][i];
    }
  }
  std::vector<double> pi(n);
  for (int64_t i = 0; i < n; ++i) pi[i] = a[i][n] / a[i][i];
  return pi;
}

// The probability of a text that begins with the stationary distribution.
double TextProbability(const MarkovSource& source, const std::vector<double>& stationary,
                       const std::vector<int64_t>& text) {
  const int64_t order = source.options().order;
  const int64_t vocabulary = source.options().vocabulary;
  int64_t context = 0;
  for (int64_t i = 0; i < order; ++i) context = context * vocabulary + text[i];
  double probability = stationary[context];
  for (size_t i = order; i < text.size(); ++i) {
    probability *= source.Probability(context, text[i]);
    context = (context * vocabulary + text[i]) % source.contexts();
  }
  return probability;
}

// H(X_1, ..., X_length), length >= order, by going through all texts.
double BruteForceEntropy(const MarkovSource& source, const std::vector<double>& stationary,
                         int64_t length) {
  const int64_t vocabulary = source.options().vocabulary;
  int64_t texts = 1;
  for (int64_t i = 0; i < length; ++i) texts *= vocabulary;
  double entropy = 0;
  for (int64_t number = 0; number < texts; ++number) {
    std::vector<int64_t> text(length);
    for (int64_t i = 0, rest = number; i < length; ++i, rest /= vocabulary) {
      text[i] = rest % vocabulary;
    }
    const double p = TextProbability(source, stationary, text);
    if (p > 0) entropy -= p * std::log(p);
  }
  return entropy;
}

TEST(MarkovSource, RowsAreSparseDistributions) {
  const MarkovSource source = Make({});
  EXPECT_EQ(source.contexts(), 256);
  for (int64_t context = 0; context < source.contexts(); ++context) {
    double sum = 0;
    int likely = 0;
    for (int64_t token = 0; token < 16; ++token) {
      const double p = source.Probability(context, token);
      EXPECT_GT(p, 0.001);
      likely += p > 0.02;
      sum += p;
    }
    EXPECT_DOUBLE_EQ(sum, 1);
    EXPECT_EQ(likely, 4) << context;
  }
}

TEST(MarkovSource, StationaryDistributionSolvesItsEquations) {
  for (const MarkovSourceOptions& options :
       {MarkovSourceOptions{},
        {.vocabulary = 2, .order = 5, .successors = 1, .smoothing = 0.1},
        {.vocabulary = 7, .order = 1, .successors = 2},
        {.vocabulary = 4, .order = 3},
        {.vocabulary = 6, .order = 0}}) {
    const MarkovSource source = Make(options);
    const std::vector<double> expected = SolveStationary(source);
    double sum = 0;
    for (int64_t i = 0; i < source.contexts(); ++i) {
      EXPECT_NEAR(source.stationary()[i], expected[i], 1e-12);
      sum += source.stationary()[i];
    }
    EXPECT_NEAR(sum, 1, 1e-12);
  }
}

TEST(MarkovSource, ConditionalEntropiesAreThoseOfAllTexts) {
  for (const MarkovSourceOptions& options :
       {MarkovSourceOptions{.vocabulary = 3, .order = 2, .successors = 2},
        {.vocabulary = 2, .order = 3, .successors = 1, .smoothing = 0.3},
        {.vocabulary = 5, .order = 1, .successors = 2},
        {.vocabulary = 5, .order = 0, .successors = 2}}) {
    const MarkovSource source = Make(options);
    const std::vector<double> stationary = SolveStationary(source);
    const int64_t order = options.order;
    const double at_order = BruteForceEntropy(source, stationary, order);
    for (int64_t length = order; length <= order + 2; ++length) {
      EXPECT_NEAR(source.ConditionalEntropy(length),
                  BruteForceEntropy(source, stationary, length + 1) -
                      BruteForceEntropy(source, stationary, length),
                  1e-10);
    }
    // The parts of the first tokens add up to the entropy of a context.
    double sum = 0;
    for (int64_t known = 0; known < order; ++known) sum += source.ConditionalEntropy(known);
    EXPECT_NEAR(sum, at_order, 1e-10);
    for (int64_t known = 0; known < order + 2; ++known) {
      EXPECT_GE(source.ConditionalEntropy(known), source.ConditionalEntropy(known + 1));
    }
    EXPECT_NEAR(source.entropy_rate(), source.ConditionalEntropy(100), 0);
  }
}

// Order 1, two tokens: pi = (b, a) / (a + b) with a = P(1 | 0), b = P(0 | 1).
TEST(MarkovSource, TwoTokensByTheClosedFormula) {
  const MarkovSource source = Make({.vocabulary = 2, .order = 1, .successors = 2});
  const double a = source.Probability(0, 1);
  const double b = source.Probability(1, 0);
  const auto h = [](double p) { return -p * std::log(p) - (1 - p) * std::log(1 - p); };
  EXPECT_NEAR(source.stationary()[0], b / (a + b), 1e-12);
  EXPECT_NEAR(source.entropy_rate(), (b * h(a) + a * h(b)) / (a + b), 1e-12);
}

TEST(MarkovSource, LossFloorCountsTheFirstPositions) {
  const MarkovSource source = Make({});
  // Order 2: the first target is guessed from one token, all others from two or more.
  EXPECT_NEAR(source.LossFloor(64),
              (source.ConditionalEntropy(1) + 63 * source.entropy_rate()) / 64, 1e-12);
  EXPECT_NEAR(source.LossFloor(1), source.ConditionalEntropy(1), 1e-12);
  const MarkovSource first_order = Make({.order = 1});
  EXPECT_NEAR(first_order.LossFloor(10), first_order.entropy_rate(), 1e-12);
}

// The mean surprise of written texts under the stated probabilities is the stated entropy.
TEST(MarkovSource, WritesTextOfItsEntropy) {
  const MarkovSource source = Make({});
  const Philox random(123);
  constexpr int kTexts = 400;
  constexpr int kLength = 66;
  std::vector<int32_t> text(kLength);
  std::vector<double> count(source.contexts());
  double sum = 0;
  double squares = 0;
  int64_t n = 0;
  for (int64_t index = 0; index < kTexts; ++index) {
    source.Write(random, index, absl::MakeSpan(text));
    for (int i = 2; i < kLength; ++i) {
      const int64_t context = text[i - 2] * 16 + text[i - 1];
      const double surprise = -std::log(source.Probability(context, text[i]));
      sum += surprise;
      squares += surprise * surprise;
      ++n;
    }
    // Every place has the stationary distribution: the first context and one in the middle.
    count[text[0] * 16 + text[1]] += 1;
    count[text[40] * 16 + text[41]] += 1;
  }
  const double mean = sum / static_cast<double>(n);
  const double deviation = std::sqrt(squares / static_cast<double>(n) - mean * mean);
  EXPECT_NEAR(mean, source.entropy_rate(), 5 * deviation / std::sqrt(static_cast<double>(n)));
  double chi_square = 0;
  double bins = 0;
  for (int64_t context = 0; context < source.contexts(); ++context) {
    const double expected = source.stationary()[context] * 2 * kTexts;
    chi_square += (count[context] - expected) * (count[context] - expected) / expected;
    bins += 1;
  }
  EXPECT_LT(chi_square, bins + 7 * std::sqrt(2 * bins));
}

// The tokens after one context, counted in texts of an order-1 source.
TEST(MarkovSource, WritesTokensWithTheStatedProbabilities) {
  const MarkovSource source = Make({.vocabulary = 4, .order = 1, .successors = 2});
  const Philox random(7);
  std::vector<std::vector<double>> count(4, std::vector<double>(4));
  std::vector<int32_t> text(1001);
  for (int64_t index = 0; index < 50; ++index) {
    source.Write(random, index, absl::MakeSpan(text));
    for (size_t i = 1; i < text.size(); ++i) count[text[i - 1]][text[i]] += 1;
  }
  double chi_square = 0;
  for (int context = 0; context < 4; ++context) {
    double total = 0;
    for (double times : count[context]) total += times;
    for (int token = 0; token < 4; ++token) {
      const double expected = total * source.Probability(context, token);
      chi_square += std::pow(count[context][token] - expected, 2) / expected;
    }
  }
  EXPECT_LT(chi_square, 12 + 5 * 4.9);  // 4 x 3 degrees of freedom: deviation 4.9
}

TEST(MarkovSource, TextsBelongToTheirIndex) {
  const MarkovSource source = Make({});
  const Philox random(1);
  std::vector<int32_t> a(40), b(40), shorter(20), one(1);
  source.Write(random, 17, absl::MakeSpan(a));
  source.Write(random, 18, absl::MakeSpan(b));
  EXPECT_NE(a, b);
  source.Write(random, 17, absl::MakeSpan(b));
  EXPECT_EQ(a, b);
  source.Write(random, 17, absl::MakeSpan(shorter));
  EXPECT_EQ(shorter, std::vector<int32_t>(a.begin(), a.begin() + 20));
  source.Write(random, 17, absl::MakeSpan(one));
  EXPECT_EQ(one[0], a[0]);
}

TEST(MarkovSource, SourcesAndSeedsDiffer) {
  const MarkovSource source = Make({});
  for (const MarkovSourceOptions& options :
       {MarkovSourceOptions{.seed = 1}, MarkovSourceOptions{.source = 1}}) {
    const MarkovSource other = Make(options);
    EXPECT_NE(other.entropy_rate(), source.entropy_rate());
    int shared = 0;
    for (int64_t context = 0; context < 256; ++context) {
      for (int64_t token = 0; token < 16; ++token) {
        shared +=
            other.Probability(context, token) > 0.02 && source.Probability(context, token) > 0.02;
      }
    }
    EXPECT_NEAR(shared, 256, 100);  // by chance 4 * 4 / 16 a context
  }
}

TEST(MarkovSource, RefusesOptionsOutOfRange) {
  const auto error = [](const MarkovSourceOptions& options) {
    const absl::Status status = MarkovSource::Create(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(error({.vocabulary = 1}), HasSubstr("vocabulary must be between 2 and 262144"));
  EXPECT_THAT(error({.order = -1}), HasSubstr("order must be at least 0"));
  EXPECT_THAT(error({.successors = 17}), HasSubstr("between 1 and its vocabulary, 16"));
  EXPECT_THAT(error({.smoothing = 0}), HasSubstr("smoothing must be above 0"));
  EXPECT_THAT(error({.vocabulary = 64, .order = 4}), HasSubstr("table is too large"));
  EXPECT_THAT(error({.vocabulary = 65536, .order = 1}), HasSubstr("table is too large"));
  EXPECT_THAT(error({.vocabulary = 2, .order = 1000, .successors = 1}),
              HasSubstr("table is too large"));
}

}  // namespace
}  // namespace lockstep
