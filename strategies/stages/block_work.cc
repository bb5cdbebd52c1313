#include "strategies/stages/block_work.h"

#include <algorithm>
#include <set>
#include <string>

#include "core/nn/adaptable_layer.h"

namespace lockstep {
namespace {

// Biases and normalisations are no factors of products.
bool IsFactor(const Parameter& parameter) { return parameter.shape.rank() >= 2; }

double Elements(const Parameter& parameter) {
  return static_cast<double>(parameter.shape.elements());
}

bool IsFrozen(const Model& model) {
  const std::vector<Parameter*> parameters = model.Parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const Parameter* parameter) { return !parameter->trainable; });
}

// Multiply-adds that backward recomputes of a block whose output needs a gradient.
double Recomputed(const Block& block, double forward) {
  double macs = block.recomputed.whole ? forward : 0;
  for (const OperationCost& operation : block.cost.operations) {
    for (const std::string& kind : block.recomputed.operations) {
      if (kind == operation.kind) macs += static_cast<double>(operation.forward_macs);
    }
  }
  return macs;
}

// The work of the next block of a model of which only adapters are trained. `trained_before`:
// whether anything is before it, and then behind it.
BlockWork AdaptedWork(Block& block, bool& trained_before) {
  std::vector<AdaptableLayer*> layers;
  std::set<const Parameter*> of_layers;
  double weights = 0;  // elements, without adapters
  for (Module* module : block.Modules()) {
    auto* layer = dynamic_cast<AdaptableLayer*>(module);
    if (layer == nullptr) continue;
    layers.push_back(layer);
    weights += Elements(layer->weight());
    of_layers.insert(&layer->weight());
    for (const Adapter& adapter : layer->adapters()) of_layers.insert({&adapter.a(), &adapter.b()});
  }
  double others = 0;  // of weights in other layers, such as a head's
  for (const Parameter* parameter : block.Parameters()) {
    if (IsFactor(*parameter) && !of_layers.contains(parameter)) others += Elements(*parameter);
  }
  weights += others;

  const auto forward = static_cast<double>(block.cost.forward_macs);
  const auto of_activations = static_cast<double>(block.cost.activation_macs);
  const double uses = weights > 0 ? (forward - of_activations) / weights : 0;
  BlockWork work = {.forward = forward};
  for (AdaptableLayer* layer : layers) {
    const bool needs_input_gradient = trained_before;
    if (needs_input_gradient) work.input_gradient += uses * Elements(layer->weight());
    for (const Adapter& adapter : layer->adapters()) {
      const double a = uses * Elements(adapter.a()), b = uses * Elements(adapter.b());
      work.forward += a + b;
      work.weight_gradient += a + b;
      work.input_gradient += b + (needs_input_gradient ? a : 0);
      trained_before = true;
    }
    if (layer == layers.front() && trained_before) work.input_gradient += 2 * of_activations;
  }
  if (trained_before) work.input_gradient += uses * others;
  return work;
}

}  // namespace

std::vector<BlockWork> WorkOfBlocks(const Model& model) {
  std::vector<BlockWork> works;
  bool trained_before = false;  // an adapter
  const bool is_frozen = IsFrozen(model);
  const bool is_stated = model.ForwardMacsPerSample() > 0;
  bool is_trained = false;  // whether anything is, up to here
  for (const auto& block : model.blocks) {
    const double macs = is_stated ? static_cast<double>(block->cost.forward_macs) : 1;
    works.push_back(is_frozen && is_stated
                        ? AdaptedWork(*block, trained_before)
                        : BlockWork{macs, /*input_gradient=*/macs, /*weight_gradient=*/macs});
    for (const Parameter* parameter : block->Parameters()) is_trained |= parameter->trainable;
    if (is_trained) works.back().input_gradient += Recomputed(*block, works.back().forward);
  }
  return works;
}

}  // namespace lockstep
