#include "core/report/cost_prediction.h"

#include "glog/logging.h"

namespace lockstep {

void CostPrediction::AddTraffic(Operation operation, const std::string& label, double wire_bytes,
                                Often often) {
  for (Traffic& known : traffic) {
    if (known.operation != operation || known.label != label) continue;
    CHECK(known.often == often) << label;
    known.wire_bytes += wire_bytes;
    return;
  }
  traffic.push_back(
      {.operation = operation, .label = label, .wire_bytes = wire_bytes, .often = often});
}

}  // namespace lockstep
