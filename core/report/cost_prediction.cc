#include "core/report/cost_prediction.h"

#include "glog/logging.h"

namespace lockstep {

void CostPrediction::AddMemory(MemoryClass memory_class, int64_t bytes) {
  for (Memory& known : memory) {
    if (known.memory_class == memory_class) known.bytes += bytes;
  }
}

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

void CostPrediction::AddCollective(Operation operation, const std::string& label, int ranks,
                                   double bytes) {
  CHECK(operation == Operation::kAllReduce || operation == Operation::kAllGather ||
        operation == Operation::kReduceScatter)
      << label;
  // An all-reduce is a reduce-scatter and an all-gather.
  const double rounds = operation == Operation::kAllReduce ? 2 : 1;
  AddTraffic(operation, label, rounds * RingFraction(ranks) * bytes);
}

double RingFraction(int ranks) { return static_cast<double>(ranks - 1) / ranks; }

}  // namespace lockstep
