#include "foresight/kernel_tensors.h"

#include <algorithm>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/kernels/kernels.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

struct Known {
  absl::string_view kernel, tensors;
};
// As the CPU's kernels name them to observers (core/kernels/cpu, `Span span`).
constexpr Known kKnown[] = {
    {"Fill", "y"},
    {"Copy", "x y"},
    {"Cast", "x y"},
    {"CopyColumns", "x y"},
    {"CopyFromHost", "y"},
    {"CopyToHost", "x"},
    {"Add", "a b y"},
    {"Multiply", "a b y"},
    {"Scale", "x y"},
    {"AddScaled", "x y"},
    {"Relu", "x y"},
    {"ReluBackward", "y dy dx"},
    {"Gelu", "x y"},
    {"GeluBackward", "x dy dx"},
    {"SwiGlu", "x y"},
    {"SwiGluBackward", "x dy dx"},
    {"ApplyDropout", "x y"},
    {"MatMul", "a b c"},
    {"Linear", "x w bias residual y"},
    {"LinearByLeaves", "x w y"},
    {"LinearBackward", "dy x w dx dw dbias"},
    {"AddBias", "x bias residual y"},
    {"ColumnSums", "x sums"},
    {"GeluMlp", "x up up_bias down down_bias residual pre y"},
    {"GeluMlpByLeaves", "x up up_bias down pre y"},
    {"GeluLinear", "pre down bias residual y"},
    {"GeluMlpBackward", "x pre up down dy dx dup dup_bias ddown ddown_bias"},
    {"Convolution", "x w bias y"},
    {"ConvolutionBackwardInput", "dy w dx"},
    {"ConvolutionBackwardWeight", "dy x dw dbias"},
    {"MaxPool", "x y"},
    {"MaxPoolBackward", "x y dy dx"},
    {"GlobalAveragePool", "x y"},
    {"GlobalAveragePoolBackward", "dy dx"},
    {"Upsample", "x y"},
    {"UpsampleBackward", "dy dx"},
    {"BatchNorm", "x scale shift residual y mean variance"},
    {"BatchNormInference", "x scale shift residual mean variance y"},
    {"BatchNormBackward", "x scale mean variance y dy dx dresidual dscale dshift"},
    {"AddStatistics", "mean variance sums"},
    {"UpdateRunningStatistics", "sums running_mean running_variance"},
    {"LayerNorm", "x scale shift y mean inverse_stddev"},
    {"LayerNormBackward", "x scale mean inverse_stddev dy residual dx dscale dshift"},
    {"RmsNorm", "x scale y inverse_rms"},
    {"RmsNormBackward", "x scale inverse_rms dy residual dx dscale"},
    {"Embedding", "ids table y"},
    {"EmbeddingBackward", "ids dy dtable"},
    {"LocalIds", "ids y"},
    {"AddPositions", "x table y"},
    {"AddPositionsBackward", "dy dtable"},
    {"Rotate", "x positions table y"},
    {"AttentionForward", "qkv y log_sum_exp"},
    {"AttentionBackward", "qkv y log_sum_exp dy dqkv"},
    {"AttentionOfPart", "queries keys largest sums outputs"},
    {"AddAttention", "more_largest more_sums more_outputs largest sums outputs"},
    {"FinishAttention", "largest sums outputs y log_sum_exp"},
    {"AttentionOfPartBackward", "queries keys y log_sum_exp dy dqueries dkeys"},
    {"Route", "logits bias chosen weights"},
    {"RouteBackward", "logits chosen dweights balance dlogits"},
    {"CombineRows", "x places weights residual sums"},
    {"CombineRowsBackward", "dsums x places weights dx dweights"},
    {"SoftmaxCrossEntropy", "logits targets losses dlogits"},
    {"CountCorrect", "logits targets"},
    {"LargestLogits", "logits largest where"},
    {"SumExponentials", "logits largest targets sums gaps"},
    {"SplitCrossEntropy", "logits largest sums gaps targets losses dlogits"},
    {"SumOfAll", "x"},
    {"MaxMagnitude", "x"},
    {"SumOfSquares", "x"},
    {"UpdateParameters", "gradient parameter copy states"},
};

const Known* Find(absl::string_view kernel) {
  const auto* found = std::find_if(std::begin(kKnown), std::end(kKnown),
                                   [&](const Known& known) { return known.kernel == kernel; });
  return found == std::end(kKnown) ? nullptr : found;
}

// Tensors whose rows are not those of a batch: parameters and what is summed for them.
bool IsOfParameters(absl::string_view name) {
  constexpr absl::string_view kNames[] = {"w",       "dw",         "bias",     "dbias", "up",
                                          "up_bias", "dup",        "dup_bias", "down",  "down_bias",
                                          "ddown",   "ddown_bias", "scale",    "shift", "dscale",
                                          "dshift",  "table",      "dtable",   "sums"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

void AddTo(NamedTensor& named, const TensorKind& tensor, int64_t repeats) {
  if (tensor.elements() == 0) return;  // undefined
  const bool repeated = repeats > 1 && !IsOfParameters(named.name);
  const auto times = static_cast<double>(repeated ? repeats : 1);
  named.bytes += times * static_cast<double>(tensor.bytes());
  named.elements += times * static_cast<double>(tensor.elements());
  named.rows += times * static_cast<double>(tensor.shape.rows());
  named.columns = tensor.shape.rank() == 0 ? 1 : static_cast<double>(tensor.shape[-1]);
}

}  // namespace

absl::string_view WithoutLeaves(absl::string_view kernel) {
  if (!absl::ConsumeSuffix(&kernel, "ByTokenLeaves")) absl::ConsumeSuffix(&kernel, "ByLeaves");
  return kernel;
}

int UpdateStride() { return 3 + kMostOptimizerStates; }

std::vector<absl::string_view> TensorNames(absl::string_view kernel) {
  const Known* known = Find(kernel);
  if (known == nullptr) known = Find(WithoutLeaves(kernel));
  if (known == nullptr) return {};
  return absl::StrSplit(known->tensors, ' ');
}

std::vector<NamedTensor> TensorsOf(const KernelCall& call, int64_t repeats) {
  std::vector<NamedTensor> tensors;
  for (const absl::string_view name : TensorNames(call.kernel)) tensors.push_back({.name = name});
  const size_t names = tensors.size();
  const size_t stride =
      absl::string_view(call.kernel) == "UpdateParameters" ? UpdateStride() : names;
  for (size_t i = 0; names > 0 && i < call.tensors.size(); ++i) {
    AddTo(tensors[std::min(i % stride, names - 1)], call.tensors[i], repeats);
  }
  return tensors;
}

}  // namespace lockstep
