#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "core/nn/adapter.h"
#include "core/nn/module.h"

namespace lockstep {

// What an adapter adds to some rows of its layer's weight, without the scale: left right, with
// left [rows.count, rank] and right [rank, ..., columns], or its transpose.
struct LowRank {
  Range rows;
  Tensor left, right;
  Transpose right_is = Transpose::kNo;
};

// A layer with a weight that adapters can be added to (lora.h).
class AdaptableLayer : public Module {
 public:
  // Output features that can be adapted by themselves, and the name by which patterns choose them.
  struct Target {
    std::string name;
    Range outputs;
  };
  // The whole layer, under its own name, and then the projections that it packs, if any.
  virtual std::vector<Target> Targets() const { return {{name(), {0, weight_.shape[0]}}}; }

  // Adds the parameters `<target>.lora_A` and `<target>.lora_B`, which start Kaiming-uniform with
  // a = sqrt(5), as PyTorch's linear layers do, and as zeros. Before the layer is split.
  virtual void AddAdapter(const Target& target, const AdapterShape& shape);
  // Whether adapters may have dropout.
  virtual bool adapters_drop_inputs() const { return true; }

  // What an adapter of this layer, which has all of its memory here, adds to the weight.
  virtual std::vector<LowRank> AddedToWeight(const Adapter& adapter, Kernels& kernels) const;
  // Whether the weight's rows are input features, and its columns outputs.
  virtual bool has_inputs_as_rows() const { return false; }

  Parameter& weight() { return weight_; }
  const Parameter& weight() const { return weight_; }
  std::deque<Adapter>& adapters() { return adapters_; }
  const std::deque<Adapter>& adapters() const { return adapters_; }

 protected:
  // `window`: of a convolution.
  AdaptableLayer(std::string name, const Shape& weight_shape, Init init,
                 std::optional<Window> window = std::nullopt);

  // y, what the layer makes of x, with what its adapters add. Uses y up.
  Variable Adapt(Pass& pass, const Variable& x, Variable y) const;

  // product(x, weight) + bias with what the adapters add, of a layer whose sums over features are
  // trees over leaves: what several read of x is added leaf by leaf, the last adapter's first and
  // the layer's last; and what several add to the result, in this order, the layer's first.
  Variable RunByOutputs(Pass& pass, const WeightProduct& product, const Variable& x,
                        Parameter* bias, const FeatureLeaves& outputs);
  // `adapted`: what the adapters read, if it is not x.
  Variable RunByInputs(Pass& pass, const WeightProduct& product, const Variable& x,
                       const FeatureLeaves& inputs, const Variable* adapted = nullptr);

  // As Adapter's, for all of them.
  void CutAdapters(const FeatureCut& cut);
  void SplitAdapterOutputs(const Slice& of_layer, SplitGroup& group);
  void SplitAdapterInputs(const Slice& of_layer, SplitGroup& group);
  void SplitAdapterTokens(SplitGroup& group);

 private:
  Parameter& weight_;  // [out, ..., in]
  std::optional<Window> window_;
  std::deque<Adapter> adapters_;
};

}  // namespace lockstep
