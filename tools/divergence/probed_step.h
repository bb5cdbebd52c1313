// One step of a recorded run, whose tensors are held to what their inputs give.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/kernels/reference.h"
#include "core/probe/probed_run.h"
#include "tools/divergence/held_tensors.h"

namespace lockstep {

// Tensors by name: parameters, running statistics, and optimizer state.
using NamedArrays = std::map<std::string, reference::Array>;

class ProbedStep {
 public:
  // `weights`: parameters before the step. All must outlive this.
  ProbedStep(const ProbedRun& run, int64_t step, const NamedArrays& weights, OwnErrors& errors);

  // Undefined where it was not recorded.
  reference::Array Weight(const std::string& name) const;
  bool Has(const std::string& weight) const { return weights_.contains(weight); }

  const std::vector<std::string>& blocks() const { return run_.header().blocks; }
  int64_t token_leaves() const { return run_.header().tokens; }
  // The micro-batches of the step whose inputs were recorded.
  const std::vector<int64_t>& micro_batches() const { return micro_batches_; }
  // How many targets all micro-batches of the step have together.
  double Targets() const;

  // A recorded tensor; undefined where there is none. `number`: of the micro-batch; -1: the step's.
  absl::StatusOr<reference::Array> Read(ProbeKind kind, const std::string& place,
                                        int64_t number = -1) const;

  // Holds what is recorded, if anything is, to what it should be. The errors of HoldTensor.
  absl::Status Hold(ProbeKind kind, const std::string& place, int64_t number,
                    const reference::Result& expected);

  // What a micro-batch adds to the gradient of a parameter.
  void AddGradient(const std::string& parameter, const reference::Result& part);
  // Holds the gradients of parameters to the sums of what was added.
  absl::Status HoldGradients();

 private:
  const ProbedRun& run_;
  const int64_t step_;
  const NamedArrays& weights_;
  OwnErrors& errors_;
  std::vector<int64_t> micro_batches_;
  std::map<std::string, reference::Result> gradients_;
};

// The terms of `part` come to those of `sum`, which may be undefined.
void AddTo(reference::Result& sum, const reference::Result& part);

// What was computed from numbers that were recomputed, too, carries on their errors.
void Widen(reference::Result& y);

}  // namespace lockstep
