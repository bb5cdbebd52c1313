#include "strategies/recompute/forwards_again.h"

#include <algorithm>
#include <vector>

#include "core/nn/experts.h"

namespace lockstep {

bool IsIn(const Block& block, const std::string& layer) {
  return layer == block.name() || layer.starts_with(block.name() + ".");
}

GradientNeeds NeedsOf(const Model& model, const std::string& layer) {
  GradientNeeds needs;
  bool is_before = true;
  for (const Parameter* parameter : model.Parameters()) {
    const bool is_in = parameter->name.starts_with(layer + ".");
    if (!is_in && !is_before) break;
    is_before &= !is_in;
    needs.of_input |= is_before && parameter->trainable;
    needs.of_output |= parameter->trainable;
  }
  return needs;
}

int ForwardsAgain(const Model& model, const Block& block, const SplitTraffic::PartOf& operation) {
  const std::vector<std::string>& operations = block.recomputed.operations;
  const bool is_operation =
      std::find(operations.begin(), operations.end(), operation.kind) != operations.end();
  return (block.recomputed.whole && NeedsOf(model, block.name()).of_output ? 1 : 0) +
         (is_operation && NeedsOf(model, operation.module).of_output ? 1 : 0);
}

SplitTraffic::PartOf OperationOf(const Model& model, const std::string& layer) {
  for (const SplitTraffic& traffic : model.split_traffic) {
    const std::string& module = traffic.operation.module;
    if (!module.empty() && layer.starts_with(module + ".")) return traffic.operation;
  }
  return {};
}

int64_t RoutedExperts(const LocalModel& local_model, int forwards) {
  const Model& model = local_model.model();
  int64_t experts = 0;
  for (const BlockRange& blocks : local_model.ranges()) {
    for (int64_t i = blocks.begin; i < blocks.end; ++i) {
      for (Module* module : model.blocks[i]->Modules()) {
        const auto* router = dynamic_cast<RouterLayer*>(module);
        if (router == nullptr) continue;
        const int again =
            ForwardsAgain(model, *model.blocks[i], OperationOf(model, router->name()));
        experts += (forwards + again) * router->experts();
      }
    }
  }
  return experts;
}

}  // namespace lockstep
