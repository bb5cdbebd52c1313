#include "core/nn/probe.h"

#include <utility>

#include "core/nn/split.h"

namespace lockstep {
namespace {

ProbedTensor Describe(const Pass& pass, const std::string& place) {
  return {.place = place,
          .step = pass.step,
          .micro_batch = pass.micro_batch,
          .tokens = pass.tokens,
          .own_rows = OwnRows(pass.sequence, pass.tokens)};
}

}  // namespace

Variable Probed(Pass& pass, const std::string& place, Variable y,
                std::optional<HeldFeatures> features) {
  if (pass.probe == nullptr) return y;
  ProbedTensor tensor = Describe(pass, place);
  tensor.features = std::move(features);
  if (!pass.is_recomputing()) pass.probe->Observe(tensor, y.value);
  if (!y.needs_gradient()) return y;
  // The gradient is whole before it goes on to the slot of `y`, so no order of sums changes.
  Variable probed = pass.tape.Result(std::move(y.value), true);
  tensor.direction = ProbedTensor::Direction::kBackward;
  pass.tape.Record(probed, [&tape = pass.tape, probe = pass.probe, slot = std::move(y.gradient),
                            tensor = std::move(tensor)](Tensor dy) {
    probe->Observe(tensor, dy);
    slot->Add(tape.kernels(), std::move(dy));
  });
  return probed;
}

Variable Probed(Pass& pass, const std::string& place, Variable y, const Parameter& parameter) {
  if (pass.probe == nullptr) return y;
  const Range all = {.first = 0, .count = parameter.shape[0]};
  const bool is_split = parameter.slice && parameter.slice->dimension == 0;
  Slice slice = {.dimension = 1, .ranges = {all}};
  if (is_split) slice.ranges = parameter.slice->ranges;
  return Probed(pass, place, std::move(y),
                HeldFeatures{.slice = std::move(slice), .all = all.count});
}

void ProbeValue(const Pass& pass, const std::string& place, const Tensor& value) {
  if (pass.probe != nullptr) pass.probe->Observe(Describe(pass, place), value);
}

}  // namespace lockstep
