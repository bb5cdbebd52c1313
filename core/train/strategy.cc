#include "core/train/strategy.h"

namespace lockstep {

void CostPrediction::AddTraffic(Operation operation, const std::string& label, double wire_bytes) {
  for (Traffic& known : traffic) {
    if (known.operation != operation || known.label != label) continue;
    known.wire_bytes += wire_bytes;
    return;
  }
  traffic.push_back({.operation = operation, .label = label, .wire_bytes = wire_bytes});
}

}  // namespace lockstep
