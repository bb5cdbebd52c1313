// Probes of passes: what watches the values that leave blocks and layers, and the gradients that
// come back to them (docs/debugging.md). Layers only say what a tensor is and which elements of it
// are here; core/run/record/run_probe.h decides what becomes of it.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/autograd/variable.h"
#include "core/base/token_order.h"
#include "core/nn/parameter.h"
#include "core/nn/pass.h"
#include "core/tensor/slice.h"

namespace lockstep {

// The features, entries of a row, that this rank has of a tensor whose features ranks divide.
struct HeldFeatures {
  Slice slice = {};     // along dimension 1 of [rows, all]
  int64_t all = 0;      // features of the whole tensor
  int64_t padding = 0;  // further columns of the tensor here, which are no part of the whole
};

// A tensor of a pass, and where it is probed.
struct ProbedTensor {
  enum class Direction { kForward, kBackward };

  Direction direction = Direction::kForward;
  std::string place;  // of a block or layer: "blocks.0.attention.qkv"
  int64_t step = 0;
  int64_t micro_batch = 0;
  TokenOrder tokens = {};
  Range own_rows = {};  // of the micro-batch's, where ranks divide the rows between split layers
  std::optional<HeldFeatures> features = {};  // none: all features are here
};

class PassProbe {
 public:
  virtual ~PassProbe() = default;
  // Takes note of `value`, which may change after the call. Throws StatusException where it cannot
  // be written down.
  virtual void Observe(const ProbedTensor& tensor, const Tensor& value) = 0;
  // Takes note of the gradient of a shard of the batch that this rank has for its part of a
  // parameter, before it is summed over shards and ranks. It may change after the call.
  virtual void ObserveGradient(const std::string& /*parameter*/, const Tensor& /*gradient*/) {}
  // Takes note of what this rank adds to a sum over ranks, or gives to all of them, at the moment
  // in which it hands it over: whose bits were wrong shows in no result of the step. `what`: in
  // words, "the batch statistics". It may change after the call. Numbers of the host by themselves.
  virtual void ObserveHandedOver(const std::string& /*what*/, const Tensor& /*value*/) {}
  virtual void ObserveNumbersHandedOver(const std::string& /*what*/,
                                        std::span<const double> /*numbers*/) {}
};

// Returns `y`, the output of a block or layer. With a probe, its value is observed now, and its
// gradient, complete, when backward reaches it. What is computed twice is observed once. Without a
// probe this costs a comparison.
Variable Probed(Pass& pass, const std::string& place, Variable y,
                std::optional<HeldFeatures> features = std::nullopt);

// Probed for an output [..., features] with one feature for each row that `parameter` has here.
Variable Probed(Pass& pass, const std::string& place, Variable y, const Parameter& parameter);

// Lets the pass's probe, if any, observe a value that has no gradient of interest: inputs, targets,
// losses.
void ProbeValue(const Pass& pass, const std::string& place, const Tensor& value);

}  // namespace lockstep
