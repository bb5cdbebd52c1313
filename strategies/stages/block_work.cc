#include "strategies/stages/block_work.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

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

// Walks through the blocks of a model of which only adapters are trained.
class AdaptedWork {
 public:
  BlockWork Of(Block& block) {
    BlockWork work;
    std::set<const Parameter*> of_layers;
    double weights = 0;  // elements, without adapters
    for (Module* module : block.Modules()) {
      if (auto* layer = dynamic_cast<AdaptableLayer*>(module)) {
        weights += Elements(layer->weight());
        of_layers.insert(&layer->weight());
        for (const Adapter& adapter : layer->adapters()) {
          of_layers.insert({&adapter.a(), &adapter.b()});
        }
      }
    }
    double others = 0;  // of weights in other layers, such as a head's
    for (const Parameter* parameter : block.Parameters()) {
      if (IsFactor(*parameter) && !of_layers.contains(parameter)) others += Elements(*parameter);
    }
    weights += others;

    const auto forward = static_cast<double>(block.cost.forward_macs);
    const auto of_activations = static_cast<double>(block.cost.activation_macs);
    const double uses = weights > 0 ? (forward - of_activations) / weights : 0;
    work.forward = forward;
    bool is_first = true;
    for (Module* module : block.Modules()) {
      auto* layer = dynamic_cast<AdaptableLayer*>(module);
      if (layer == nullptr) continue;
      Add(*layer, uses, work);
      if (std::exchange(is_first, false) && trained_before_) {
        work.input_gradient += 2 * of_activations;
      }
    }
    if (trained_before_) work.input_gradient += uses * others;
    return work;
  }

 private:
  void Add(AdaptableLayer& layer, double uses, BlockWork& work) {
    const bool needs_input_gradient = trained_before_;
    if (needs_input_gradient) work.input_gradient += uses * Elements(layer.weight());
    for (const Adapter& adapter : layer.adapters()) {
      const double a = uses * Elements(adapter.a()), b = uses * Elements(adapter.b());
      work.forward += a + b;
      work.weight_gradient += a + b;
      work.input_gradient += b + (needs_input_gradient ? a : 0);
      trained_before_ = true;
    }
  }

  bool trained_before_ = false;
};

}  // namespace

std::vector<BlockWork> WorkOfBlocks(const Model& model) {
  std::vector<BlockWork> works;
  AdaptedWork adapted;
  const bool is_frozen = IsFrozen(model);
  const bool is_stated = model.ForwardMacsPerSample() > 0;
  bool is_trained = false;  // whether anything is, up to here
  for (const auto& block : model.blocks) {
    const double macs = is_stated ? static_cast<double>(block->cost.forward_macs) : 1;
    works.push_back(is_frozen && is_stated
                        ? adapted.Of(*block)
                        : BlockWork{macs, /*input_gradient=*/macs, /*weight_gradient=*/macs});
    for (const Parameter* parameter : block->Parameters()) is_trained |= parameter->trainable;
    if (is_trained) works.back().input_gradient += Recomputed(*block, works.back().forward);
  }
  return works;
}

}  // namespace lockstep
