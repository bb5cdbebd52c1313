#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/base/philox.h"

namespace lockstep {

struct MarkovSourceOptions {
  int64_t vocabulary = 16;
  int64_t order = 2;       // tokens of the past that the next one depends on; 0: on none
  int64_t successors = 4;  // likely next tokens in each context

  // Probability that a token is drawn from the whole vocabulary evenly instead of from the likely
  // ones. Above 0, so that each context can follow each other and there is one stationary state.
  double smoothing = 0.02;

  uint64_t seed = 0;
  uint64_t source = 0;  // another number, another source: other likely tokens and probabilities
};

// A stationary Markov source of tokens in [0, vocabulary), and what is known about it exactly.
//
// A context is the last `order` tokens, c = ((t_1 * vocabulary + t_2) * vocabulary + ...), the
// newest in the last digit: vocabulary^order of them. Each has `successors` likely next tokens,
// distinct and with unequal probabilities, drawn by Philox from the seed and source. Probabilities
// are multiples of 2^-32, and next tokens are drawn by comparing 32 random bits with their sums:
// the tokens follow the stated probabilities without any rounding.
//
// The default has 256 contexts with 4 likely tokens of 16 each. A guess from the newest token alone
// costs 2.64 nats where the entropy rate is 1.42, so a model must combine two positions by
// attention; and the table is small enough for a small GPT to learn within a minute or two on a
// CPU: 2 layers of width 64 at batch 16, context 64 and learning rate 5e-3 leave the plateau of the
// one token between steps 300 and 600 and are within 0.05 nat of the rate before step 2000.
class MarkovSource {
 public:
  // InvalidArgument for options outside of their range: vocabulary 2 to 2^18, order at least 0,
  // successors 1 to vocabulary, smoothing above 0 and at most 1, at most 2^18 contexts and 2^24
  // probabilities; and for a source that mixes too slowly. The default takes about 5 ms.
  static absl::StatusOr<MarkovSource> Create(const MarkovSourceOptions& options);

  const MarkovSourceOptions& options() const { return options_; }
  int64_t contexts() const { return contexts_; }

  // The probability of a token after a context.
  double Probability(int64_t context, int64_t token) const;

  // The probability of each context at any place of the text, by power iteration in double until it
  // moves no more.
  absl::Span<const double> stationary() const { return stationary_; }

  // -sum_c stationary(c) sum_t P(t | c) ln P(t | c): the mean surprise of a token, in nats, for
  // who knows the source and at least `order` tokens before it.
  double entropy_rate() const;

  // The same for who knows only the `known` tokens before it: H(X_{known+1} | X_1, ..., X_known).
  // Falls with `known`; the entropy rate from `known` == order on. Requires known >= 0.
  double ConditionalEntropy(int64_t known) const;

  // The lowest expected loss, in nats a token, over a window of `context` targets of which the
  // first is guessed from one token, the second from two, and so on. Requires context >= 1.
  double LossFloor(int64_t context) const;

  // Writes text number `index`: the first `order` tokens by the stationary probabilities, then on
  // by the source, so that each place of each text has the stationary distribution. A pure function
  // of `random` and the index; another index gives an independent text. About 30 ns a token.
  void Write(const Philox& random, int64_t index, absl::Span<int32_t> tokens) const;

 private:
  explicit MarkovSource(const MarkovSourceOptions& options);
  void DrawTransitions();
  void ComputeStationary();
  double BlockEntropy(int64_t length) const;
  int64_t Next(int64_t context, int64_t token) const;

  MarkovSourceOptions options_;
  int64_t contexts_ = 1;
  bool settled_ = false;  // whether stationary_ was found
  // [contexts, vocabulary]: 2^32 times the probability of this token or a smaller one.
  std::vector<uint64_t> cumulative_;
  std::vector<double> stationary_;             // [contexts]
  std::vector<double> stationary_cumulative_;  // [contexts]
  std::vector<double> conditional_entropy_;    // [order + 1], by known tokens
};

}  // namespace lockstep
