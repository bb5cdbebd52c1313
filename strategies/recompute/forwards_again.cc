#include "strategies/recompute/forwards_again.h"

#include <algorithm>
#include <vector>

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

}  // namespace lockstep
