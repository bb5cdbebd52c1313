#include "core/nn/lora.h"

#include <algorithm>
#include <set>

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

// weight [out, in] += scale b a, in fp32, in the rows that the adapter has; in: all but the first
// dimension.
void AddTo(const Tensor& weight, const Adapter& adapter, Kernels& kernels) {
  const Tensor& a = adapter.a().value;
  const Tensor& b = adapter.b().value;
  const int64_t rank = a.shape()[0], in = a.elements() / rank;
  const auto [first, count] = adapter.outputs();
  const Tensor wide_a = kernels.Empty({rank, in}), wide_b = kernels.Empty({count, rank});
  kernels.Cast(a.Reshape({rank, in}), wide_a);
  kernels.Cast(b, wide_b);
  kernels.Scale(wide_b, adapter.scale(), wide_b);
  const Tensor rows = kernels.Empty({count, in});
  // Rows of the weight lie one behind the other, but on a boundary of their own only as a copy.
  const Tensor all = weight.Reshape({weight.shape()[0], in});
  const Tensor sum = kernels.Empty({all.shape()[0], in});
  kernels.Cast(all, sum);
  kernels.MatMul(wide_b, Transpose::kNo, wide_a, Transpose::kNo, Write::kOverwrite, rows);
  std::vector<float> host(sum.elements()), added(rows.elements());
  kernels.CopyToHost(sum, host.data());
  kernels.CopyToHost(rows, added.data());
  for (int64_t i = 0; i < rows.elements(); ++i) host[first * in + i] += added[i];
  kernels.CopyFromHost(host.data(), sum);
  kernels.Cast(sum, all);
}

}  // namespace

absl::Status AddAdapters(Model& model, const LoraOptions& options) {
  const std::vector<AdaptableLayer*> layers = AdaptableLayers(model);
  std::set<std::string> used;
  std::vector<std::vector<AdaptableLayer::Target>> chosen;
  for (const AdaptableLayer* layer : layers) chosen.push_back(Choose(*layer, options.layers, used));
  LS_RETURN_IF_ERROR(CheckUsed(options.layers, used, layers));
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
      AddTo(weight, adapter, kernels);
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
