#pragma once

#include <cstdint>
#include <optional>

#include "core/autograd/operations.h"
#include "core/autograd/sliced_operations.h"
#include "core/nn/parameter.h"
#include "core/nn/pass.h"
#include "core/nn/split.h"

namespace lockstep {

// What all adapters of a model have in common.
struct AdapterShape {
  int64_t rank = 1;
  float scale = 1;    // of what the adapter adds
  float dropout = 0;  // of its input
};

// A low-rank addition to what a frozen layer computes (Hu et al., "LoRA", 2021):
// y + scale B A dropout(x), to all features of y or to a range of them. For a convolution, A is
// a convolution too, to `rank` channels through the layer's window, and B one by 1 x 1.
//
// Where ranks compute the layer together (split.h), the adapter is split as the layer is and tells
// the group nothing in its passes: of a column B has the layer's output features, of a row A has
// its input features and what is added takes part in the layer's sum. The factor that is whole on
// every rank gets a partial gradient there (Parameter::features_over). Where a rank has several
// feature leaves, the whole factor has an accumulator for each.
class Adapter {
 public:
  // `a`: [rank, in], or [rank, kernel, kernel, in] with a window. `b`: [outputs.count, rank], for
  // these of the layer's features. Both outlive it.
  Adapter(Parameter& a, Parameter& b, const AdapterShape& shape, const Range& outputs,
          std::optional<Window> window = std::nullopt)
      : a_(a), b_(b), shape_(shape), outputs_(outputs), first_(outputs.first), window_(window) {}

  // y and what the adapter adds to it; x is what the layer has met. Uses y up.
  Variable Add(Pass& pass, const Variable& x, Variable y) const;
  // Add for a layer split by column, from the readers of each feature leaf (FanOut), which have
  // `outputs` of y's features; and for a layer split by row, whose leaves have `inputs` of x's.
  Variable Add(Pass& pass, const Variables& x, Variable y, const FeatureLeaves& outputs) const;
  LeafSum Add(Pass& pass, const Variable& x, LeafSum y, const FeatureLeaves& inputs) const;

  // Makes it the slice of a member, whose layer has these of its weight's output features, or of
  // its input features; or all features, of some of the tokens.
  void SplitOutputs(const Slice& of_layer, SplitGroup& group);
  void SplitInputs(const Slice& of_layer, SplitGroup& group);
  // Says how many feature leaves are here of a layer that is split by column, or by row.
  void CutOutputs(int leaves) { a_.feature_leaves = leaves; }
  void CutInputs(int leaves) { b_.feature_leaves = leaves; }
  void SplitTokens(SplitGroup& group) { sequence_ = &group; }

  Parameter& a() const { return a_; }
  Parameter& b() const { return b_; }
  float scale() const { return shape_.scale; }
  const Range& outputs() const { return outputs_; }

  // A merged adapter is in the layer's weight, and adds nothing (lora.h).
  void set_merged(bool merged) { merged_ = merged; }
  bool is_merged() const { return merged_; }

 private:
  Variable Drop(Pass& pass, const Variable& x) const;
  // Where x, with rows of so many elements, begins among all rows of the micro-batch.
  int64_t FirstElement(const Pass& pass, int64_t width) const;

  Parameter& a_;
  Parameter& b_;
  AdapterShape shape_;
  Range outputs_;                   // of the whole layer
  int64_t first_;                   // column of y where they begin
  std::optional<Window> window_;    // of a convolution
  SplitGroup* sequence_ = nullptr;  // null: x has all tokens
  bool merged_ = false;
};

}  // namespace lockstep
