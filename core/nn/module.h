#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/autograd/variable.h"
#include "core/nn/parameter.h"
#include "core/nn/pass.h"
#include "core/nn/running_statistics.h"
#include "core/nn/skips.h"
#include "core/nn/split.h"

namespace lockstep {

// A node of a model's tree: a name, parameters, running statistics and children. Built without
// memory; Materialize (or a strategy) gives the parameters theirs.
class ExpertGroup;

class Module {
 public:
  explicit Module(std::string name) : name_(std::move(name)) {}
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // The full dotted path: "blocks.0.attention".
  const std::string& name() const { return name_; }

  // All parameters below this node, in the order in which forward first uses them.
  std::vector<Parameter*> Parameters() const;
  std::vector<RunningStatistics*> Statistics() const;

  // This node and all below.
  std::vector<Module*> Modules();

  // Whether this layer divides so into `count` slices, of which `slices` says what they are.
  // InvalidArgument with what does not divide.
  virtual absl::Status CheckSplit(SplitStyle /*style*/, int /*count*/,
                                  const std::string& /*slices*/) const {
    return absl::OkStatus();
  }
  // Makes the sums over the features that `style` splits trees over `features` leaves, whoever
  // computes the layer (docs/numerics.md, "Feature leaves"). Before Split, if at all: without it, a
  // layer has as many leaves as ranks. Called for all modules.
  virtual void CutFeatures(SplitStyle /*style*/, int /*features*/) {}
  // Makes this layer the slice of one member, before its parameters have memory. Called for all
  // modules, also replicated ones: a split sequence concerns them too. The group outlives the
  // model.
  virtual void Split(SplitStyle /*style*/, SplitGroup& /*group*/) {}

  // Makes the layer that of one member of a group that divides experts. Before or after Split.
  virtual void DivideExperts(ExpertGroup& /*group*/) {}

 protected:
  // A parameter named name() + "." + leaf.
  Parameter& AddParameter(const std::string& leaf, const Shape& shape, Init init);
  RunningStatistics& AddStatistics(int64_t channels, std::optional<float> momentum);
  template <typename Statistics>
  Statistics& AddStatistics(std::unique_ptr<Statistics> statistics) {
    Statistics& added = *statistics;
    members_.push_back({nullptr, std::move(statistics), nullptr});
    return added;
  }

  // A child named name() + "." + leaf; further arguments go to its constructor.
  template <typename Child, typename... Arguments>
  Child& AddChild(const std::string& leaf, Arguments&&... arguments) {
    auto child = std::make_unique<Child>(name_ + "." + leaf, std::forward<Arguments>(arguments)...);
    Child& added = *child;
    members_.push_back({nullptr, nullptr, std::move(child)});
    return added;
  }

 private:
  // Exactly one is set; one list keeps the order of registration across the kinds.
  struct Member {
    std::unique_ptr<Parameter> parameter;
    std::unique_ptr<RunningStatistics> statistics;
    std::unique_ptr<Module> child;
  };

  std::string name_;
  std::vector<Member> members_;
};

// What a strategy hangs on a block. `before_backward` runs when backward reaches the block's
// output, `after_backward` when it has left its input; both only where the tape records.
struct BlockHooks {
  std::function<void(Pass&)> before_forward = [](Pass&) {};
  std::function<void(Pass&)> after_forward = [](Pass&) {};
  std::function<void()> before_backward = [] {};
  std::function<void()> after_backward = [] {};
};

// What the operations of one kind in a block (recompute.h) cost for one sample.
struct OperationCost {
  std::string kind;
  int64_t forward_macs = 0;
};

// What a block costs for one sample, as its model states it: what theory is made from.
struct BlockCost {
  // Multiply-adds of a forward pass: of matrix products and convolutions, attention counted in
  // full. A training step costs 6 times as many floating-point operations.
  int64_t forward_macs = 0;
  int64_t output_elements = 0;  // that it hands on, in the dtype that is computed with
  // The part of forward_macs in products of activations with each other, as attention has them: no
  // weight can be frozen there.
  int64_t activation_macs = 0;
  // All operations of the block: parts of forward_macs.
  std::vector<OperationCost> operations = {};
};

// What backward computes again of a block, of which forward then keeps the inputs only.
struct BlockRecomputation {
  bool whole = false;                        // the block itself
  std::vector<std::string> operations = {};  // kinds of operations in it
};

// What a model is a list of: the unit of FSDP, and what a pipeline cuts between.
//
// Blocks hand on what they return to the next one. What a later one needs beside, they stash:
//
//   Down::Down(...) { DeclareStash("detail", height * width * channels); }
//   Up::Up(...) { DeclarePop("detail"); }
//   ... in Forward: Stash(pass, "detail", x); and there: Variable detail = Pop(pass, "detail");
class Block : public Module {
 public:
  using Module::Module;

  BlockCost cost;
  BlockRecomputation recomputed;  // set before the first pass

  // Runs the hooks around Forward. Throws StatusException, FailedPrecondition, when Forward does
  // not stash and pop what the block declares.
  Variables Run(Pass& pass, Variables inputs);

  void AddHooks(BlockHooks hooks) { hooks_.push_back(std::move(hooks)); }

  const std::vector<SkipName>& stashes() const { return stashes_; }
  const std::vector<SkipName>& pops() const { return pops_; }
  bool Stashes(const SkipName& name) const;
  // The elements of one sample, for each of stashes().
  const std::vector<int64_t>& stash_elements() const { return stash_elements_; }

  // Puts this block's skips that are in no name space yet into one: those of these names, or all.
  void Isolate(const std::string& space, const std::vector<std::string>& names = {});

 protected:
  virtual Variables Forward(Pass& pass, Variables inputs) = 0;

  // In a constructor: what Forward stashes and pops. `elements` of one sample.
  void DeclareStash(const std::string& name, int64_t elements);
  void DeclarePop(const std::string& name);
  // In Forward, by the declared names. Throw StatusException, FailedPrecondition, for others.
  void Stash(Pass& pass, const std::string& name, Variable variable);
  Variable Pop(Pass& pass, const std::string& name);

 private:
  // Forward, which keeps nothing of the block but what comes in: inputs and popped skips.
  Variables ForwardRecomputed(Pass& pass, Variables inputs);
  void CheckSkips(const Pass& pass) const;

  std::vector<BlockHooks> hooks_;
  std::vector<SkipName> stashes_;
  std::vector<int64_t> stash_elements_;
  std::vector<SkipName> pops_;
};

// Gives parameters memory of their own and their initial values; tied ones share. Statistics too.
void Materialize(const std::vector<Parameter*>& parameters, uint64_t seed, Kernels& kernels);
void Materialize(const std::vector<RunningStatistics*>& statistics, Kernels& kernels);

}  // namespace lockstep
