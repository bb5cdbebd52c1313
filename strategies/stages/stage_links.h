#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/autograd/variable.h"
#include "core/train/rank.h"
#include "core/train/stage.h"
#include "strategies/stages/tensor_route.h"

namespace lockstep {

// What a stage hands to the next one and gets from the one before it, and the gradients of it on
// their way back. The time that it waits for them is the phase kBubble. Members throw
// StatusException.
class StageLinks {
 public:
  // `stages` has a rank for each stage, in their order; it and `stage` outlive the links.
  StageLinks(Stage& stage, Communicator& stages);

  // From the stage before, which has one: its outputs, as inputs of a tape of this rank.
  Variables ReceiveActivations(const BatchKind& kind);
  // To the stage after, which has one.
  void SendActivations(const BatchKind& kind, const Variables& outputs);

  // The gradients of these outputs, in their order, undefined where none is needed or none came;
  // and those of the inputs, to the stage before.
  std::vector<Tensor> ReceiveGradients(const BatchKind& kind);
  void SendGradients(const BatchKind& kind, const std::vector<Tensor>& of_inputs);

  // Until the stages around have taken all that was sent.
  void AwaitSent();

 private:
  Rank& rank_;
  std::optional<RouteEnd> activations_in_, gradients_in_;
  std::optional<RouteStart> activations_out_, gradients_out_;
};

// Adds what the links of a stage send in a step.
void AddLinkTraffic(const Stage& stage, const Settings& settings, CostPrediction& prediction);

}  // namespace lockstep
