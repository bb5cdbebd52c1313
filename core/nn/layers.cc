#include "core/nn/layers.h"

#include <cmath>
#include <utility>

#include "core/base/philox.h"

namespace lockstep {
namespace {

float RootOf(int64_t fan) { return 1.0f / std::sqrt(static_cast<float>(fan)); }

}  // namespace

LinearLayer::LinearLayer(std::string name, int64_t in, int64_t out, const Options& options)
    : Module(std::move(name)),
      weight_(AddParameter("weight", {out, in},
                           options.weight_init ? *options.weight_init : Init::Uniform(RootOf(in)))),
      bias_(options.bias == Bias::kNo
                ? nullptr
                : &AddParameter(
                      "bias", {out},
                      options.weight_init ? Init::Constant(0) : Init::Uniform(RootOf(in)))) {}

ConvolutionLayer::ConvolutionLayer(std::string name, int64_t in, int64_t out, const Window& window)
    : Module(std::move(name)),
      window_(window),
      weight_(AddParameter(
          "weight", {out, window.kernel, window.kernel, in},
          Init::Normal(std::sqrt(2.0f) * RootOf(out * window.kernel * window.kernel)))) {}

BatchNormLayer::BatchNormLayer(std::string name, int64_t channels, Activation activation)
    : Module(std::move(name)),
      activation_(activation),
      weight_(AddParameter("weight", {channels}, Init::Constant(1))),
      bias_(AddParameter("bias", {channels}, Init::Constant(0))),
      statistics_(AddStatistics(channels, kMomentum)) {}

Variable BatchNormLayer::operator()(Pass& pass, const Variable& x, const Variable* residual) {
  Kernels& k = pass.kernels();
  if (!pass.training()) {
    Tensor y = k.EmptyLike(x.value);
    k.BatchNormInference(x.value, weight_.value, bias_.value, residual ? residual->value : Tensor(),
                         statistics_.mean, statistics_.variance, kEpsilon, activation_, y);
    return Variable(y);
  }
  Tensor mean = k.Empty({statistics_.channels}), variance = k.Empty({statistics_.channels});
  Variable y = BatchNorm(pass.tape, x, weight_, bias_, residual,
                         {.epsilon = kEpsilon, .activation = activation_}, mean, variance);
  statistics_.Gather(k, mean, variance, x.shape().rows());
  return y;
}

LayerNormLayer::LayerNormLayer(std::string name, int64_t width)
    : Module(std::move(name)),
      weight_(AddParameter("weight", {width}, Init::Constant(1))),
      bias_(AddParameter("bias", {width}, Init::Constant(0))) {}

EmbeddingLayer::EmbeddingLayer(std::string name, int64_t entries, int64_t width, Init init)
    : Module(std::move(name)), weight_(AddParameter("weight", {entries, width}, init)) {}

Dropout DropoutAt(const Pass& pass, const std::string& layer_name, float probability) {
  if (!pass.training() || probability == 0) return {};
  return {
      .probability = probability,
      .key = PhiloxKey(pass.seed, "dropout", layer_name),
      .counter = static_cast<uint64_t>(pass.step) << 32 | static_cast<uint64_t>(pass.micro_batch)};
}

}  // namespace lockstep
