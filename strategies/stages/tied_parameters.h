#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/run/local_model.h"
#include "strategies/stages/stage_plan.h"

namespace lockstep {

// Parameters that are tied to one of an earlier stage, as an output head to the embedding: once a
// step their gradients go to the stage of the owner, which adds them to its own and updates, and
// its new values come back. Of frozen ones nothing is exchanged but the values with which all
// begins. On stages without such parameters, and in models without, members do nothing. They throw
// StatusException.
class TiedParameters {
 public:
  // What a rank holds of the values of a parameter: the same elements on both ends.
  using ValuesOf = std::function<Tensor(const Parameter&)>;

  // Called by all members of `ranks`, between which `plan` divides the model. Local model and ranks
  // outlive it. The local model's gradients have their memory when the first step begins.
  // `values_of`: by default the values themselves.
  TiedParameters(
      LocalModel& local_model, const StagePlan& plan, Communicator& ranks,
      ValuesOf values_of = [](const Parameter& parameter) { return parameter.value; });

  // Of a step, in this order: before its first micro-batch, once this rank's gradients hold the
  // step's sums, before LocalModel::CompleteGradient(owner), and when all is over.
  void BeginStep();
  void SendGradients();
  void AwaitGradients(const Parameter& owner);
  void AwaitSent();

  // The owners' values, in the dtype that is computed with, to those that are tied to them: called
  // by all stages after a checkpoint was loaded; and after an update, of those that are trained.
  void SendValues();
  void SendUpdates();

  // Adds what this rank sends in a step.
  void AddTraffic(CostPrediction& prediction) const;

 private:
  // One that this rank has a part in: it has the owner, or the parameter tied to it.
  struct Tie {
    Parameter* owner;
    Parameter* tied;
    int other;  // the rank at the other end
    bool owns;
    Work gradient;  // of the step, under way here

    bool is_trained() const { return tied->trainable; }
  };

  void Send(const std::function<bool(const Tie&)>& chosen);

  LocalModel& local_model_;
  const ValuesOf values_of_;
  // Of its own, so that nothing is ordered between these messages and others of the same ranks.
  std::unique_ptr<Communicator> group_;  // null: the model has no such parameters
  std::vector<Tie> ties_;
};

}  // namespace lockstep
