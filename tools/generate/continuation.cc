#include "tools/generate/continuation.h"

#include <algorithm>
#include <cmath>
#include <iterator>  // std::ssize
#include <numeric>   // std::iota
#include <utility>

#include "core/autograd/tape.h"
#include "core/base/philox.h"
#include "core/base/status.h"
#include "core/nn/key_value_cache.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// For the token that follows the last of `tokens`, the model having read the first cache.tokens()
// of these. It reads the others.
std::vector<float> Logits(Model& model, Kernels& kernels, std::span<const int32_t> tokens,
                          KeyValueCache& cache) {
  const auto unread = tokens.subspan(static_cast<size_t>(cache.tokens()));
  const Tensor ids = kernels.Empty({1, std::ssize(unread)}, DType::kI32);
  kernels.CopyFromHost(unread.data(), ids);
  Tape tape(kernels, Tape::Recording::kOff);
  Pass pass = cache.Begin(tape, std::ssize(unread));
  Variables values = {Variable(ids)};
  for (const auto& block : model.blocks) values = block->Run(pass, std::move(values));
  const Tensor& logits = values[0].value;
  std::vector<float> all(logits.elements());
  kernels.CopyToHost(logits, all.data());
  return {all.end() - logits.shape()[-1], all.end()};
}

// In [0, 1), in steps of 2^-53.
double Uniform(const Philox& philox, uint64_t index) {
  const auto words = philox.Block(index, 0);
  const uint64_t bits = static_cast<uint64_t>(words[0]) << 32 | words[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace

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

void Continue(Model& model, Kernels& kernels, std::vector<int32_t> text,
              const ContinuationOptions& options, const std::function<void(int32_t)>& emit) {
  CHECK(!text.empty());
  CHECK_GE(options.context, 1);
  const Philox philox(PhiloxKey(options.seed, "generate", "token"));
  KeyValueCache cache(kernels, options.context);
  for (int64_t i = 0; i < options.tokens; ++i) {
    const int64_t seen = std::min(options.context, std::ssize(text));
    // The window moves: each of its tokens has another position than before.
    if (seen < std::ssize(text)) cache.Clear();
    const std::vector<float> logits =
        Logits(model, kernels, std::span(text).last(static_cast<size_t>(seen)), cache);
    if (!std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); })) {
      throw StatusException(absl::FailedPreconditionError(
          "the model's logits are infinite or NaN, so no token can be drawn: its training has "
          "diverged, or its weights are damaged; use another checkpoint"));
    }
    const int32_t token =
        SampleToken(logits, options.sampling, Uniform(philox, static_cast<uint64_t>(i)));
    if (options.stop && token == *options.stop) return;
    text.push_back(token);
    emit(token);
  }
}

}  // namespace lockstep
