#include "tools/generate/continuation.h"

#include <algorithm>
#include <iterator>  // std::ssize
#include <span>
#include <utility>

#include "core/autograd/tape.h"
#include "core/base/philox.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// For the token that follows the last of `tokens`.
std::vector<float> Logits(Model& model, Kernels& kernels, std::span<const int32_t> tokens) {
  const Tensor ids = kernels.Empty({1, std::ssize(tokens)}, DType::kI32);
  kernels.CopyFromHost(tokens.data(), ids);
  Tape tape(kernels, Tape::Recording::kOff);
  Pass pass = {.tape = tape,
               .mode = Pass::Mode::kEvaluate,
               .tokens = {.samples = ids.shape()[0], .time = ids.shape()[1]}};
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

void Continue(Model& model, Kernels& kernels, std::vector<int32_t> text,
              const ContinuationOptions& options, const std::function<void(int32_t)>& emit) {
  CHECK(!text.empty());
  CHECK_GE(options.context, 1);
  const Philox philox(PhiloxKey(options.seed, "generate", "token"));
  for (int64_t i = 0; i < options.tokens; ++i) {
    const int64_t seen = std::min(options.context, std::ssize(text));
    const std::vector<float> logits =
        Logits(model, kernels, std::span(text).last(static_cast<size_t>(seen)));
    const int32_t token =
        SampleToken(logits, options.sampling, Uniform(philox, static_cast<uint64_t>(i)));
    if (options.stop && token == *options.stop) return;
    text.push_back(token);
    emit(token);
  }
}

}  // namespace lockstep
