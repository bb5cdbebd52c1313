#include "core/nn/module.h"

#include <utility>

namespace lockstep {

std::vector<Parameter*> Module::Parameters() const {
  std::vector<Parameter*> all;
  for (const Member& member : members_) {
    if (member.parameter != nullptr) all.push_back(member.parameter.get());
    if (member.child == nullptr) continue;
    for (Parameter* parameter : member.child->Parameters()) all.push_back(parameter);
  }
  return all;
}

std::vector<RunningStatistics*> Module::Statistics() const {
  std::vector<RunningStatistics*> all;
  for (const Member& member : members_) {
    if (member.statistics != nullptr) all.push_back(member.statistics.get());
    if (member.child == nullptr) continue;
    for (RunningStatistics* statistics : member.child->Statistics()) all.push_back(statistics);
  }
  return all;
}

std::vector<Module*> Module::Modules() {
  std::vector<Module*> all = {this};
  for (const Member& member : members_) {
    if (member.child == nullptr) continue;
    for (Module* module : member.child->Modules()) all.push_back(module);
  }
  return all;
}

Parameter& Module::AddParameter(const std::string& leaf, const Shape& shape, Init init) {
  members_.push_back(
      {std::make_unique<Parameter>(name_ + "." + leaf, shape, init), nullptr, nullptr});
  return *members_.back().parameter;
}

RunningStatistics& Module::AddStatistics(int64_t channels, float momentum) {
  members_.push_back(
      {nullptr, std::make_unique<RunningStatistics>(name_, channels, momentum), nullptr});
  return *members_.back().statistics;
}

Variables Block::Run(Pass& pass, Variables inputs) {
  for (BlockHooks& hooks : hooks_) hooks.before_forward(pass);
  pass.tape.RecordAlways([this] {
    for (BlockHooks& hooks : hooks_) hooks.after_backward();
  });
  Variables outputs = Forward(pass, std::move(inputs));
  pass.tape.RecordAlways([this] {
    for (BlockHooks& hooks : hooks_) hooks.before_backward();
  });
  for (BlockHooks& hooks : hooks_) hooks.after_forward(pass);
  return outputs;
}

void Materialize(const std::vector<Parameter*>& parameters, uint64_t seed, Kernels& kernels) {
  for (Parameter* parameter : parameters) {
    if (parameter->tied_to != nullptr) continue;
    parameter->value =
        kernels.Empty(parameter->held_shape(), DType::kF32, MemoryClass::kParameters);
    Initialize(*parameter, seed, 0, kernels, parameter->value);
  }
  for (Parameter* parameter : parameters) {
    if (parameter->tied_to != nullptr) parameter->value = parameter->tied_to->value;
  }
}

void Materialize(const std::vector<RunningStatistics*>& statistics, Kernels& kernels) {
  for (RunningStatistics* layer : statistics) layer->Materialize(kernels);
}

}  // namespace lockstep
