#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/autograd/leaf.h"
#include "core/autograd/variable.h"
#include "core/kernels/kernels.h"

namespace lockstep {

// The record of one forward pass of one micro-batch, run backwards once. A pipeline keeps one tape
// per stage and micro-batch in flight; a pass without gradients uses a tape that does not record.
//
//   Tape tape(kernels);
//   Variable y = Relu(tape, x);          // operations.h
//   tape.Backward({{y, dy}});            // gradients arrive in leaves and in x.gradient
//
// Steps run in the exact reverse of the order of recording, and each gives back what it kept as
// soon as it has run. Not thread-safe: a tape belongs to the thread that runs the pass.
class Tape {
 public:
  // kForgetful: variables say whether they need a gradient, but nothing is kept to compute it. It
  // is for a forward pass that will be done again when its gradients are wanted.
  enum class Recording { kOn, kForgetful, kOff };

  // `leaf_rows`: how many rows a token leaf has, where gradients are sums over token leaves
  // (weight_gradients.h); 0 where rows are not cut.
  explicit Tape(Kernels& kernels, Recording recording = Recording::kOn, int64_t leaf_rows = 0)
      : kernels_(kernels),
        recording_(recording),
        leaf_rows_(leaf_rows),
        counts_uses_(recording == Recording::kOn) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  Kernels& kernels() { return kernels_; }
  bool recording() const { return recording_ == Recording::kOn; }
  // How many rows a token leaf has; 0 where rows are not cut.
  int64_t leaf_rows() const { return leaf_rows_; }

  // --- for operations ---------------------------------------------------------------------------

  // A variable for a result; it gets a gradient slot if `needs_gradient`, unless recording is off.
  Variable Result(Tensor value, bool needs_gradient);

  // Appends a step that gets the gradient of `output`, or is skipped in backward when that received
  // none. The gradient is moved to the step.
  using Step = std::function<void(Tensor dy)>;
  void Record(const Variable& output, Step step) { Record(output, {}, std::move(step)); }

  // The same for an operation that uses leaves (null and frozen ones are passed over): the step
  // must count each of these uses down, through ComputeGradients or CountDown. A step that is
  // skipped has none to compute, and they are counted down all the same.
  void Record(const Variable& output, std::vector<Leaf*> leaves, Step step);

  // Appends a step that runs in any case: hooks, and losses, which start backward.
  void RecordAlways(std::function<void()> step);

  // Runs `first` on `inputs` and keeps the inputs only. When backward reaches the outputs, it runs
  // `again` on the inputs, which must compute the same, and goes back through what that records
  // (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016). Gradients are added, and
  // leaves become ready, in the order in which they would be without the recomputation. Nothing is
  // recomputed where no output needs a gradient. Requires recording().
  using Region = std::function<Variables(Variables inputs)>;
  Variables Recompute(Variables inputs, const Region& first, Region again);

  // For use inside a step: computes the gradients of an operation that has leaves (null and frozen
  // ones are passed over) and then counts down their uses. Normally calls `compute` once for both
  // halves, which lets a kernel read dy once; when weights are deferred, once for the inputs now
  // and once for the weights in RunDeferred. Without a trainable leaf only the inputs are asked
  // for.
  struct Half {
    bool inputs, weights;
  };
  void ComputeGradients(std::vector<Leaf*> leaves, std::function<void(Half)> compute);

  // For operations whose kernel gives all gradients at once: counts the uses of the leaves down.
  void CountDown(const std::vector<Leaf*>& leaves);

  // --- for who runs the pass --------------------------------------------------------------------

  // Called when a leaf has received its last contribution of this backward; it has received none at
  // all (see Leaf::has_gradient) if no gradient reached the operations that used it.
  void OnLeafReady(std::function<void(Leaf&)> callback) { leaf_ready_ = std::move(callback); }

  // How often the pass has used a leaf: with 0, no gradient and no OnLeafReady will come.
  int Uses(const Leaf& leaf) const;

  // Runs all steps, starting from the given outputs' gradients (none where a loss was recorded).
  // Both are given back once read, if they are moved in: a braced list holds copies of its own.
  // kInputsOnly leaves the weight gradients to RunDeferred: the two halves of zero-bubble pipelines
  // (Qi et al., 2023).
  enum class Extent { kAll, kInputsOnly };
  struct Seed {
    Variable output;
    Tensor gradient;
  };
  void Backward(std::vector<Seed> seeds = {}, Extent extent = Extent::kAll);

  // Computes the weight gradients that Backward(kInputsOnly) left, in the same order.
  void RunDeferred();

 private:
  struct DeferredWeights {
    std::vector<Leaf*> leaves;
    std::function<void(Half)> compute;
  };
  Kernels& kernels_;
  Recording recording_;
  int64_t leaf_rows_;
  bool counts_uses_;  // not while backward recomputes: those uses were counted in forward
  Extent extent_ = Extent::kAll;
  std::vector<std::function<void()>> steps_;
  std::vector<DeferredWeights> deferred_;
  // Maps of the standard library, because those of Abseil 2022 free memory that they never had when
  // there is none for their first element.
  std::unordered_map<const Leaf*, int> uses_;
  std::unordered_map<const Leaf*, int> pending_;
  std::function<void(Leaf&)> leaf_ready_;
};

}  // namespace lockstep
