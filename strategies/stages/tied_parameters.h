#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/run/strategy/local_model.h"
#include "strategies/stages/stage_plan.h"

namespace lockstep {

// What a rank holds of a parameter's values, and of the gradient of a use.
struct HeldTensors {
  std::function<Tensor(const Parameter&)> values = [](const Parameter& p) { return p.value; };
  std::function<Tensor(const Parameter&)> gradient = [](const Parameter& p) { return p.gradient; };
};

// Parameters that are tied to an earlier one, as an output head to the embedding. Each use has a
// gradient of its own until all shards and ranks of the batch are summed. Then the gradients of
// other ranks' uses go to the owner's rank along pp, which adds all uses in the model's order and
// updates; and its new values come back. Frozen parameters are exchanged once, when
// training begins. In models without such parameters, members do nothing. They throw
// StatusException.
class TiedParameters {
 public:
  // Called by all members of `ranks`, between which `plan` divides the model. Local model and ranks
  // outlive it. The local model's gradients have their memory, where they keep it. `held`: the same
  // elements on both ends of a tie.
  TiedParameters(LocalModel& local_model, const StagePlan& plan, Communicator& ranks,
                 HeldTensors held = HeldTensors());

  // Once a step, when this rank's gradients are summed over shards and data-parallel ranks: the
  // owners' become the sums of all uses.
  void AddGradients();

  // The owners' values, in the dtype that is computed with, to those that are tied to them: called
  // by all stages after a checkpoint was loaded; and after an update, of those that are trained.
  void SendValues() { Send(/*trained_only=*/false); }
  void SendUpdates() { Send(/*trained_only=*/true); }

  // Adds what this rank sends in a step.
  void AddTraffic(CostPrediction& prediction) const;

 private:
  // One that this rank has a part in: it has the owner, or the parameter tied to it, or both.
  struct Tie {
    Parameter* owner;
    Parameter* tied;
    int other;  // the rank at the other end; this one: both are here
    bool owns;
    Tensor received = {};  // the gradient, where it comes from the other rank

    bool is_trained() const { return tied->trainable; }
  };

  bool IsAcross(const Tie& tie) const { return tie.other != own_; }
  void Send(bool trained_only);

  LocalModel& local_model_;
  const HeldTensors held_;
  const int own_;  // this rank
  // A communicator of its own: these messages are in no order with others of the same ranks.
  std::unique_ptr<Communicator> group_;  // null: no parameter is tied to another rank's
  std::vector<Tie> ties_;                // in the model's order
};

}  // namespace lockstep
