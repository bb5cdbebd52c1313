#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/run/local_model.h"
#include "core/run/stage_pass.h"
#include "core/run/strategy.h"
#include "strategies/stages/stage_plan.h"
#include "strategies/stages/variable_link.h"

namespace lockstep {

// What the stages of a rank hand to others and get from them, and the gradients of it on their way
// back: the line of activations from a stage to the next one, and skips straight from the stage
// that stashes them to the one that pops them. Each pair of stages has a group of its own, so that
// nothing is ordered between its messages and others. The time spent waiting is the phase kBubble.
// Members throw StatusException; `stage` is one of this rank's.
class StageLinks {
 public:
  // Called by all members of `ranks`, between which `plan` divides the model. All outlive the
  // links.
  StageLinks(LocalModel& local_model, const StagePlan& plan, Communicator& ranks);

  // What comes in from other stages. Expect says early what is taken next, so that it travels
  // meanwhile.
  void ExpectInputs(int stage, const BatchKind& kind);
  StageVariables TakeInputs(int stage, const BatchKind& kind);
  void SendOutputs(int stage, const BatchKind& kind, const StageVariables& outputs);

  void ExpectGradients(int stage, const BatchKind& kind);
  StageGradients TakeGradients(int stage, const BatchKind& kind);
  void SendGradients(int stage, const BatchKind& kind, const StageGradients& of_inputs);

  // Until the stages around have taken all that was sent.
  void AwaitSent();

  // Adds what this rank sends. Where tensor parallelism divides the tokens between blocks, the rank
  // has `token_fraction` of them; else 1.
  void AddTraffic(const Settings& settings, double token_fraction,
                  CostPrediction& prediction) const;

 private:
  // An edge between two stages, of which one at least is here.
  struct Edge {
    int from, to;                         // stages
    int64_t elements;                     // of one sample
    int64_t gradient_elements;            // of those that something trained leads to
    std::vector<size_t> sent;             // which of the skips that leave `from`; empty: the line
    std::vector<size_t> taken;            // which of those that come into `to`
    std::unique_ptr<Communicator> group;  // null: within this rank
    std::unique_ptr<VariableLink> link;

    bool is_line() const { return sent.empty(); }
  };

  void AddEdge(Communicator& ranks, Edge edge);
  // Gives back what others have taken by now.
  void ReleaseSent();

  Rank& rank_;
  const StagePlan& plan_;
  const int own_;  // this rank among those of the plan
  std::vector<Edge> edges_;
};

}  // namespace lockstep
