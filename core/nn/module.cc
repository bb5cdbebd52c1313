#include "core/nn/module.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/nn/probe.h"
#include "core/nn/recompute.h"

namespace lockstep {
namespace {

// The declared skip that the block's Forward calls `name`; null: none.
const SkipName* Find(const std::vector<SkipName>& declared, const std::string& name) {
  const auto found = std::find_if(declared.begin(), declared.end(),
                                  [&](const SkipName& skip) { return skip.name == name; });
  return found == declared.end() ? nullptr : &*found;
}

[[noreturn]] void ThrowFault(const std::string& block, const std::string& skip, const char* what) {
  throw StatusException(
      absl::FailedPreconditionError(absl::StrCat(block, ": skip '", skip, "' ", what)));
}

}  // namespace

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

RunningStatistics& Module::AddStatistics(int64_t channels, std::optional<float> momentum) {
  return AddStatistics(std::make_unique<RunningStatistics>(name_, channels, momentum));
}

Variables Block::Run(Pass& pass, Variables inputs) {
  for (BlockHooks& hooks : hooks_) hooks.before_forward(pass);
  pass.tape.RecordAlways([this] {
    for (BlockHooks& hooks : hooks_) hooks.after_backward();
  });
  pass.recomputed_operations = &recomputed.operations;
  Variables outputs = recomputed.whole ? ForwardRecomputed(pass, std::move(inputs))
                                       : Forward(pass, std::move(inputs));
  // Split or padded logits have been probed by their layer, which knows their classes.
  for (size_t i = 0; i < outputs.size() && pass.split_logits.leaf_classes == 0; ++i) {
    outputs[i] =
        Probed(pass, i == 0 ? name() : absl::StrCat(name(), ".", i), std::move(outputs[i]));
  }
  pass.tape.RecordAlways([this] {
    for (BlockHooks& hooks : hooks_) hooks.before_backward();
  });
  for (BlockHooks& hooks : hooks_) hooks.after_forward(pass);
  CheckSkips(pass);
  return outputs;
}

Variables Block::ForwardRecomputed(Pass& pass, Variables inputs) {
  const size_t own = inputs.size();
  for (const SkipName& skip : pops_) inputs.push_back(pass.skips.Take(skip));
  const auto run = [this, own](Pass& inner, Variables values) {
    for (size_t i = 0; i < pops_.size(); ++i) {
      inner.skips.Put(pops_[i], std::move(values[own + i]));
    }
    values.resize(own);
    Variables made = Forward(inner, std::move(values));
    CheckSkips(inner);
    for (const SkipName& skip : stashes_) made.push_back(inner.skips.Take(skip));
    return made;
  };
  Variables outputs = Recomputed(pass, std::move(inputs), run);
  const size_t handed_on = outputs.size() - stashes_.size();
  for (size_t i = 0; i < stashes_.size(); ++i) {
    pass.skips.Put(stashes_[i], std::move(outputs[handed_on + i]));
  }
  outputs.resize(handed_on);
  return outputs;
}

bool Block::Stashes(const SkipName& name) const {
  return std::find(stashes_.begin(), stashes_.end(), name) != stashes_.end();
}

void Block::Isolate(const std::string& space, const std::vector<std::string>& names) {
  const auto isolate = [&](std::vector<SkipName>& skips) {
    for (SkipName& skip : skips) {
      if (!skip.space.empty()) continue;
      if (!names.empty() && std::find(names.begin(), names.end(), skip.name) == names.end()) {
        continue;
      }
      skip.space = space;
    }
  };
  isolate(stashes_);
  isolate(pops_);
}

void Block::DeclareStash(const std::string& name, int64_t elements) {
  stashes_.push_back({"", name});
  stash_elements_.push_back(elements);
}

void Block::DeclarePop(const std::string& name) { pops_.push_back({"", name}); }

void Block::Stash(Pass& pass, const std::string& name, Variable variable) {
  const SkipName* skip = Find(stashes_, name);
  if (skip == nullptr) ThrowFault(this->name(), name, "is stashed, but was not declared");
  // The stashed variable has a gradient of its own, which is added to that of `variable` when
  // backward reaches this block. So the order of sums is the same if another rank has the block
  // that pops the skip.
  Variable stashed = pass.tape.Result(variable.value, variable.needs_gradient());
  pass.tape.Record(stashed, [&tape = pass.tape, slot = variable.gradient](Tensor dy) {
    slot->Add(tape.kernels(), std::move(dy));
  });
  pass.skips.Put(*skip, std::move(stashed));
}

Variable Block::Pop(Pass& pass, const std::string& name) {
  const SkipName* skip = Find(pops_, name);
  if (skip == nullptr) ThrowFault(this->name(), name, "is popped, but was not declared");
  return pass.skips.Take(*skip);
}

// A model stashes and pops each name once, so the skips that wait tell what Forward has done.
void Block::CheckSkips(const Pass& pass) const {
  for (const SkipName& skip : stashes_) {
    if (!pass.skips.Contains(skip)) ThrowFault(name(), skip.ToString(), "was not stashed");
  }
  for (const SkipName& skip : pops_) {
    if (pass.skips.Contains(skip)) ThrowFault(name(), skip.ToString(), "was not popped");
  }
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
