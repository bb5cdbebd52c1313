#include "core/nn/model.h"

namespace lockstep {

std::vector<Parameter*> Model::Parameters() const {
  std::vector<Parameter*> all;
  for (const auto& block : blocks) {
    for (Parameter* parameter : block->Parameters()) all.push_back(parameter);
  }
  return all;
}

std::vector<RunningStatistics*> Model::Statistics() const {
  std::vector<RunningStatistics*> all;
  for (const auto& block : blocks) {
    for (RunningStatistics* statistics : block->Statistics()) all.push_back(statistics);
  }
  return all;
}

int64_t Model::ParameterCount() const {
  int64_t count = 0;
  for (const Parameter* parameter : Parameters()) {
    if (parameter->tied_to == nullptr) count += parameter->shape.elements();
  }
  return count;
}

int64_t Model::ForwardMacsPerSample() const {
  int64_t macs = 0;
  for (const auto& block : blocks) macs += block->cost.forward_macs;
  return macs;
}

}  // namespace lockstep
