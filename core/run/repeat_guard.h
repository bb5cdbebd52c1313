#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/checkpoint/state_tensor.h"
#include "core/kernels/kernels.h"
#include "core/nn/probe.h"
#include "core/report/results.h"
#include "core/run/pass_order.h"
#include "core/run/rank_in_leg.h"
#include "core/tensor/allocator.h"

namespace lockstep {

// What passed through a rank in one run of a step, as hashes, in the order of the rank's work.
class ObservedStep final : public PassProbe {
 public:
  struct Value {
    PassOrder order;
    std::string what;
    uint64_t hash = 0;
  };

  // All of them outlive it. `next` observes the same; null: nobody does.
  ObservedStep(const std::vector<std::string>& blocks, Kernels& kernels, PassProbe* next)
      : blocks_(blocks), kernels_(kernels), next_(next) {}

  void Observe(const ProbedTensor& tensor, const Tensor& value) override;

  const std::vector<Value>& values() const { return values_; }

 private:
  const std::vector<std::string>& blocks_;
  Kernels& kernels_;
  PassProbe* next_;
  std::map<int64_t, int64_t> micro_batches_;  // in the order in which the rank works on them
  std::vector<Value> values_;
};

// Repeats steps (guard.every) from a copy of the state, and compares hashes of what came of them:
// state, loss, norm of the gradients. They are the same to the bit on every layout, so a difference
// is a fault of a processor, a memory or a link; a third run of the step decides which of the two
// was wrong. Between a step that was repeated and the next one, the state is held to its hash too.
//
// What all runs of a step get wrong alike, such as a unit that always computes the same wrong bits,
// is not seen here. Costs one more step, a copy of the state in host memory, and hashes of what
// leaves blocks and layers.
class RepeatGuard {
 public:
  // Steps between repetitions; 0: none. The kernels outlive it.
  RepeatGuard(int64_t every, Kernels& kernels) : every_(every), kernels_(kernels) {}

  // Before step `step`, counted from 0, of a leg. Called by all ranks of the leg, as is End.
  // DataLoss names the tensor and the rank whose memory has changed since the step before.
  absl::Status Begin(int64_t step, RankInLeg& here);

  // After the step. `again` trains it once more. DataLoss, which one rank tells, names step, rank
  // and the first tensor that differed.
  absl::Status End(int64_t step, const StepResult& result, RankInLeg& here,
                   const std::function<StepResult()>& again);

  // The state is about to change by other means than a step: a change of mesh.
  void Forget() { at_rest_.clear(); }

 private:
  using Hashes = std::vector<uint64_t>;
  struct Outcome {
    Hashes state;
    double loss = 0;
    double gradient_norm = 0;
    std::vector<ObservedStep::Value> observed;
  };

  bool IsDue(int64_t step) const { return every_ > 0 && (step + 1) % every_ == 0; }
  Hashes HashesOf(const std::vector<StateTensor>& state) const;
  Outcome OutcomeOf(const StepResult& result, RankInLeg& here) const;
  absl::Status CheckCopy(int64_t step, RankInLeg& here) const;
  Outcome Repeat(RankInLeg& here, const std::function<StepResult()>& again);
  absl::Status Explain(int64_t step, const Outcome& wrong, const Outcome& right,
                       const std::string& verdict, RankInLeg& here) const;

  const int64_t every_;
  Kernels& kernels_;
  CpuAllocator host_;
  std::vector<StateTensor> copy_;  // of what a step changes, in host memory
  Hashes copied_;                  // hashes of copy_
  std::optional<ObservedStep> first_;
  Hashes at_rest_;  // hashes of the state between steps; empty: not known
};

}  // namespace lockstep
