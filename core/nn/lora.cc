#include "core/nn/lora.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/nearest.h"
#include "core/base/status.h"
#include "core/nn/adaptable_layer.h"

namespace lockstep {
namespace {

std::vector<AdaptableLayer*> AdaptableLayers(const Model& model) {
  std::vector<AdaptableLayer*> layers;
  for (const auto& block : model.blocks) {
    for (Module* module : block->Modules()) {
      if (auto* layer = dynamic_cast<AdaptableLayer*>(module)) layers.push_back(layer);
    }
  }
  return layers;
}

// What to adapt of a layer, and which of the patterns say so.
std::vector<AdaptableLayer::Target> Choose(const AdaptableLayer& layer,
                                           const std::vector<std::string>& patterns,
                                           std::set<std::string>& used) {
  std::vector<AdaptableLayer::Target> chosen;
  bool is_whole = false;
  for (const AdaptableLayer::Target& target : layer.Targets()) {
    bool matches = false;
    for (const std::string& pattern : patterns) {
      if (!MatchesLayer(pattern, target.name)) continue;
      matches = true;
      used.insert(pattern);
    }
    if (matches && !is_whole) chosen.push_back(target);
    is_whole |= matches && target.name == layer.name();
  }
  return chosen;
}

absl::Status CheckUsed(const std::vector<std::string>& patterns, const std::set<std::string>& used,
                       const std::vector<AdaptableLayer*>& layers) {
  std::vector<std::string> names;
  for (const AdaptableLayer* layer : layers) {
    for (const AdaptableLayer::Target& target : layer->Targets()) names.push_back(target.name);
  }
  std::string problems;
  for (const std::string& pattern : patterns) {
    if (used.contains(pattern)) continue;
    const std::string near = NearestNames(pattern, names);
    absl::StrAppend(&problems, problems.empty() ? "" : "\n",
                    "no layer that can be adapted matches '", pattern, "'; ",
                    near.empty() ? "this model has none" : absl::StrCat("there are ", near));
  }
  return problems.empty() ? absl::OkStatus() : absl::InvalidArgumentError(problems);
}

Tensor Wide(const Tensor& x, Kernels& kernels) {
  const Tensor wide = kernels.Empty({x.shape()[0], x.elements() / x.shape()[0]});
  kernels.Cast(x.Reshape(wide.shape()), wide);
  return wide;
}

// weight [rows, ..., columns] += scale left right, in fp32, for all that an adapter adds.
void AddTo(const Tensor& weight, const std::vector<LowRank>& added, float scale, Kernels& kernels) {
  // Rows of the weight lie one behind the other, but on a boundary of their own only as a copy.
  const Tensor sum = Wide(weight, kernels);
  const int64_t columns = sum.shape()[1];
  std::vector<float> host(sum.elements());
  kernels.CopyToHost(sum, host.data());
  for (const LowRank& product : added) {
    const Tensor left = Wide(product.left, kernels), right = Wide(product.right, kernels);
    kernels.Scale(left, scale, left);
    const Tensor rows = kernels.Empty({product.rows.count, columns});
    kernels.MatMul(left, Transpose::kNo, right, product.right_is, Write::kOverwrite, rows);
    std::vector<float> own(rows.elements());
    kernels.CopyToHost(rows, own.data());
    for (int64_t i = 0; i < rows.elements(); ++i) {
      host[product.rows.first * columns + i] += own[i];
    }
  }
  kernels.CopyFromHost(host.data(), sum);
  kernels.Cast(sum, weight.Reshape(sum.shape()));
}

// Experts' rows lie in another order on each mesh: a mask has no place of its own there, and PEFT
// refuses dropout of experts too.
absl::Status CheckDropout(const LoraOptions& options, const AdaptableLayer& layer) {
  if (options.dropout == 0 || layer.adapters_drop_inputs()) return absl::OkStatus();
  return InvalidArgument("adapters of experts have no dropout, and there would be one in layer '",
                         layer.name(), "' with lora.dropout=", options.dropout,
                         "; set lora.dropout=0, or name other layers");
}

}  // namespace

absl::Status AddAdapters(Model& model, const LoraOptions& options) {
  const std::vector<AdaptableLayer*> layers = AdaptableLayers(model);
  std::set<std::string> used;
  std::vector<std::vector<AdaptableLayer::Target>> chosen;
  for (const AdaptableLayer* layer : layers) chosen.push_back(Choose(*layer, options.layers, used));
  LS_RETURN_IF_ERROR(CheckUsed(options.layers, used, layers));
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!chosen[i].empty()) LS_RETURN_IF_ERROR(CheckDropout(options, *layers[i]));
  }
  for (Parameter* parameter : model.Parameters()) parameter->trainable = false;
  for (RunningStatistics* statistics : model.Statistics()) statistics->frozen = true;
  const AdapterShape shape = {.rank = options.rank,
                              .scale = options.scale(),
                              .dropout = static_cast<float>(options.dropout)};
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const AdaptableLayer::Target& target : chosen[i]) layers[i]->AddAdapter(target, shape);
  }
  return absl::OkStatus();
}

bool HasAdapters(const Model& model) {
  const std::vector<AdaptableLayer*> layers = AdaptableLayers(model);
  return std::any_of(layers.begin(), layers.end(),
                     [](AdaptableLayer* layer) { return !layer->adapters().empty(); });
}

MergedAdapters::MergedAdapters(Model& model, Kernels& kernels) : model_(model), kernels_(kernels) {
  for (AdaptableLayer* layer : AdaptableLayers(model)) {
    if (layer->adapters().empty()) continue;
    const Tensor& weight = layer->weight().value;
    const Tensor before = kernels.Empty(weight.shape(), weight.dtype(), MemoryClass::kParameters);
    kernels.Copy(weight, before);
    kept_.push_back({weight, before});
    for (Adapter& adapter : layer->adapters()) {
      AddTo(weight, layer->AddedToWeight(adapter, kernels), adapter.scale(), kernels);
      adapter.set_merged(true);
    }
  }
}

void MergedAdapters::Unmerge() {
  for (const Kept& kept : kept_) kernels_.Copy(kept.before, kept.weight);
  kept_.clear();
  for (AdaptableLayer* layer : AdaptableLayers(model_)) {
    for (Adapter& adapter : layer->adapters()) adapter.set_merged(false);
  }
}

}  // namespace lockstep
