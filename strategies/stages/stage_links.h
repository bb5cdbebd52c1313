#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "core/run/strategy/local_model.h"
#include "core/run/strategy/stage_pass.h"
#include "core/run/strategy/strategy.h"
#include "strategies/stages/stage_plan.h"
#include "strategies/stages/tensor_route.h"

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
  void ExpectInputs(int stage, const BatchKind& kind) {
    Expect(stage, kind, &Edge::to, &Edge::variables);
  }
  StageVariables TakeInputs(int stage, const BatchKind& kind);
  void SendOutputs(int stage, const BatchKind& kind, const StageVariables& outputs);

  void ExpectGradients(int stage, const BatchKind& kind) {
    Expect(stage, kind, &Edge::from, &Edge::gradients);
  }
  StageGradients TakeGradients(int stage, const BatchKind& kind);
  void SendGradients(int stage, const BatchKind& kind, const StageGradients& of_inputs);

  // Until the stages around have taken all that was sent.
  void AwaitSent();

  // Adds what this rank sends. Where tensor parallelism divides the tokens between blocks, the rank
  // has `token_fraction` of them; else 1.
  void AddTraffic(const Settings& settings, double token_fraction,
                  CostPrediction& prediction) const;

 private:
  // One way along an edge: lists of tensors, in order. Between ranks each has its end of a route;
  // within a rank the lists wait in memory.
  struct Channel {
    std::optional<RouteStart> start = {};
    std::optional<RouteEnd> end = {};
    std::deque<RoutedTensors> here = {};

    void Send(const BatchKind& kind, RoutedTensors tensors);
    RoutedTensors Take(const BatchKind& kind);
  };
  struct End {
    int stage = 0;
    std::vector<size_t> skips = {};  // which of the stage's pass here; none: the line does
  };
  // Between two stages, of which one at least is here.
  struct Edge {
    End from = {}, to = {};
    int64_t elements = 0;                           // of one sample
    int64_t gradient_elements = 0;                  // of those that something trained leads to
    std::unique_ptr<Communicator> group = nullptr;  // null: within this rank
    Channel variables = {}, gradients = {};

    bool is_line() const { return from.skips.empty(); }
  };
  struct Lists {
    RoutedTensors line, skips;
  };

  void AddEdge(Communicator& ranks, Edge edge);
  // What comes in, or goes out, along a channel of all edges that have the stage at one end.
  Lists Take(int stage, const BatchKind& kind, End Edge::*end, Channel Edge::*channel);
  void Send(int stage, const BatchKind& kind, End Edge::*end, Channel Edge::*channel,
            const Lists& lists);
  void Expect(int stage, const BatchKind& kind, End Edge::*end, Channel Edge::*channel);
  // Gives back what was sent, by ReleaseSent or AwaitSent of each route.
  void GiveBackSent(void (RouteStart::*give_back)());

  Rank& rank_;
  const StagePlan& plan_;
  const int own_;  // this rank among those of the plan
  std::vector<Edge> edges_;
};

// The loss of a step, which the last stage has, on all ranks: summed over `shards`, which hold the
// same blocks, and then told to all `stages` by rank `from` there. Called by all of them when they
// have run their passes. Waiting for the other stages is the phase kBubble: here a rank that is
// done waits for those that are not. Throws StatusException.
double ShareLoss(LocalModel& local_model, Communicator& shards, Communicator& stages, int from);

// Adds what it sends.
void AddLossTraffic(const LocalModel& local_model, const Communicator& shards,
                    const Communicator& stages, int from, CostPrediction& prediction);

}  // namespace lockstep
