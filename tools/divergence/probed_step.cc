#include "tools/divergence/probed_step.h"

#include <cstddef>

namespace lockstep {

using reference::Array;
using reference::Result;

ProbedStep::ProbedStep(const ProbedRun& run, int64_t step, const NamedArrays& weights,
                       OwnErrors& errors)
    : run_(run), step_(step), weights_(weights), errors_(errors) {
  const int64_t all = run.header().shards * run.header().micro_batches;
  for (int64_t i = 0; i < all; ++i) {
    if (run.Find({.step = step, .number = i, .place = "batch.inputs"}) != nullptr) {
      micro_batches_.push_back(i);
    }
  }
}

Array ProbedStep::Weight(const std::string& name) const {
  const auto found = weights_.find(name);
  return found == weights_.end() ? Array() : found->second;
}

double ProbedStep::Targets() const {
  double targets = 0;
  for (const int64_t number : micro_batches_) {
    const ProbedWhole* tensor =
        run_.Find({.step = step_, .number = number, .place = "batch.targets"});
    if (tensor != nullptr) targets += static_cast<double>(tensor->elements);
  }
  return targets;
}

absl::StatusOr<Array> ProbedStep::Read(ProbeKind kind, const std::string& place,
                                       int64_t number) const {
  const ProbedWhole* tensor =
      run_.Find({.step = step_, .kind = kind, .number = number, .place = place});
  return tensor == nullptr ? Array() : ReadArray(run_, *tensor);
}

absl::Status ProbedStep::Hold(ProbeKind kind, const std::string& place, int64_t number,
                              const Result& expected) {
  const ProbedWhole* tensor =
      run_.Find({.step = step_, .kind = kind, .number = number, .place = place});
  if (tensor == nullptr || !expected.defined()) return absl::OkStatus();
  return HoldTensor(run_, *tensor, expected, errors_);
}

void ProbedStep::AddGradient(const std::string& parameter, const Result& part) {
  AddTo(gradients_[parameter], part);
}

absl::Status ProbedStep::HoldGradients() {
  for (const auto& [parameter, gradient] : gradients_) {
    const absl::Status held = Hold(ProbeKind::kGradient, parameter, -1, gradient);
    if (!held.ok()) return held;
  }
  return absl::OkStatus();
}

void AddTo(Result& sum, const Result& part) {
  if (!part.defined()) return;
  if (!sum.defined()) {
    sum = part;
    return;
  }
  for (size_t i = 0; i < sum.value.size(); ++i) {
    sum.value[i] += part.value[i];
    sum.magnitude[i] += part.magnitude[i];
  }
}

void Widen(Result& y) {
  constexpr double kRecomputed = 8;
  for (double& magnitude : y.magnitude) magnitude *= kRecomputed;
}

}  // namespace lockstep
