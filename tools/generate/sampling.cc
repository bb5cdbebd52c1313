#include "tools/generate/sampling.h"

#include <algorithm>
#include <cmath>
#include <iterator>  // std::ssize
#include <numeric>   // std::iota
#include <vector>

#include "glog/logging.h"

namespace lockstep {

int32_t SampleToken(std::span<const float> logits, const SamplingOptions& options, double uniform) {
  CHECK(!logits.empty());
  CHECK(uniform >= 0 && uniform < 1) << uniform;
  std::vector<int32_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  const int32_t likeliest = *std::ranges::min_element(tokens, likelier);
  const double largest = logits[likeliest];
  CHECK(std::isfinite(largest)) << largest;
  if (options.temperature == 0 || options.top_k == 1) return likeliest;
  if (options.top_k > 0 && options.top_k < std::ssize(tokens)) {
    std::nth_element(tokens.begin(), tokens.begin() + options.top_k, tokens.end(), likelier);
    tokens.resize(static_cast<size_t>(options.top_k));
    std::ranges::sort(tokens);
  }
  std::vector<double> weights;
  double sum = 0;
  for (const int32_t token : tokens) {
    weights.push_back(std::exp((logits[token] - largest) / options.temperature));
    sum += weights.back();
  }
  double below = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    below += weights[i];
    if (below > uniform * sum) return tokens[i];
  }
  return likeliest;  // the sum of all, rounded, may not exceed a number just below 1
}

}  // namespace lockstep
