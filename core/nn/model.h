#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/nn/context.h"
#include "core/nn/module.h"
#include "core/nn/published.h"
#include "core/nn/split.h"

namespace lockstep {

// A model: an ordered list of blocks that ends in logits, and what a strategy may do with it. It
// knows no strategy (contract 1 of the design).
struct Model {
  std::vector<std::unique_ptr<Block>> blocks;

  // The plan for tensor parallelism; see SplitRule for what a pattern names.
  std::vector<SplitRule> split_plan;
  // What its layers then move, for a theory of the traffic.
  std::vector<SplitTraffic> split_traffic;
  // Whether what lies between split layers is made of tokens that know nothing of each other there,
  // so that ranks may divide them (SplitGroup::splits_sequence, ContextGroup).
  bool splits_sequence = false;
  // Whether layers compare what all tokens of a micro-batch chose (capacity, auxiliary loss).
  bool counts_choices = false;
  // Experts of each layer that has some; 0: there are none.
  int64_t experts = 0;
  // Elements of parameters that a token does not meet, on average: those of experts that it does
  // not choose.
  int64_t idle_parameters = 0;
  // Ranks that divide the tokens of each sequence, which takes `splits_sequence`; null: this rank
  // has all of them. Every gradient is one of the rank's own tokens (Parameter::context_over).
  ContextGroup* context = nullptr;

  // Ranks that divide the rows between split layers; null: none do. Set by Split.
  const SplitGroup* sequence = nullptr;

  // What its parameters are called in files from elsewhere.
  PublishedNames published;
  // A file that they start from: a checkpoint, or one with those names; empty: from their Init.
  std::string initial_weights;

  std::vector<Parameter*> Parameters() const;
  std::vector<RunningStatistics*> Statistics() const;

  // Whether the layers of the plan divide into so many slices. InvalidArgument with a line for each
  // that does not; `slices` says what they are ("ranks").
  absl::Status CheckSplit(int count, const std::string& slices = "ranks") const;
  // Cuts the layers of the plan into feature leaves (Module::CutFeatures). Before Split.
  void CutFeatures(int features);
  // Makes the model, which has no memory yet, the slice of one member. Requires CheckSplit.
  void Split(SplitGroup& group);
  // Gives the model, which has no memory yet, the experts of one member. Requires that these
  // divide.
  void DivideExperts(ExpertGroup& group);

  // Elements of all parameters, tied ones counted once.
  int64_t ParameterCount() const;
  // Elements of the parameters that a token is computed with.
  int64_t ActiveCount() const { return ParameterCount() - idle_parameters; }
  // Elements of the parameters that are trained.
  int64_t TrainedCount() const;

  // The sum over all blocks; see BlockCost.
  int64_t ForwardMacsPerSample() const;
};

}  // namespace lockstep
