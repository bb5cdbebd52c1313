#include "core/nn/adapter.h"

#include <algorithm>
#include <utility>

#include "core/nn/dropout.h"

namespace lockstep {

Variable Adapter::Add(Pass& pass, const Variable& x, Variable y) const {
  if (merged_) return y;
  const Variable dropped = Drop(pass, x);
  const Variable low = window_ ? Convolution(pass.tape, dropped, a_, nullptr, *window_)
                               : Linear(pass.tape, dropped, a_, nullptr);
  return AddProduct(pass.tape, std::move(y), Scale(pass.tape, low, shape_.scale), b_, first_);
}

Variable Adapter::Add(Pass& pass, const Variables& x, Variable y,
                      const FeatureLeaves& outputs) const {
  if (merged_) return y;
  Tape& tape = pass.tape;
  const Variables dropped = ApplyDropout(tape, DropoutAt(pass, a_.name, shape_.dropout), x,
                                         FirstElement(pass, x[0].shape()[-1]));
  const Variables low = Product(tape, WeightProduct::Of(window_), dropped, a_);
  return AddProduct(tape, std::move(y), Scale(tape, low, shape_.scale), b_, first_, outputs);
}

LeafSum Adapter::Add(Pass& pass, const Variable& x, LeafSum y, const FeatureLeaves& inputs) const {
  if (merged_) return y;
  Tape& tape = pass.tape;
  LeafSum low = SlicedInputs(tape, WeightProduct::Of(window_), Drop(pass, x), a_, inputs);
  return AddProduct(tape, std::move(y), Scale(tape, std::move(low), shape_.scale), b_, first_);
}

Variable Adapter::Drop(Pass& pass, const Variable& x) const {
  const Dropout dropout = DropoutAt(pass, a_.name, shape_.dropout);
  if (a_.slice) {
    return ApplyDropoutToColumns(pass.tape, dropout, x, a_.slice->ranges[0].first, a_.shape[-1],
                                 FirstElement(pass, a_.shape[-1]));
  }
  return ApplyDropout(pass.tape, dropout, x, FirstElement(pass, x.shape()[-1]));
}

int64_t Adapter::FirstElement(const Pass& pass, int64_t width) const {
  return OwnRows(sequence_, pass.tokens).first * width;
}

void Adapter::SplitOutputs(const Slice& of_layer, SplitGroup& group) {
  a_.features_over = &group;
  Slice own = {.dimension = 0, .ranges = {}};
  int64_t column = 0;  // of the layer's slice
  for (const Range& range : of_layer.ranges) {
    const int64_t begin = std::max(range.first, outputs_.first);
    const int64_t end = std::min(range.first + range.count, outputs_.first + outputs_.count);
    if (begin < end) {
      if (own.ranges.empty()) first_ = column + begin - range.first;
      own.ranges.push_back({.first = begin - outputs_.first, .count = end - begin});
    }
    column += range.count;
  }
  b_.slice = own;
}

void Adapter::SplitInputs(const Slice& of_layer, SplitGroup& group) {
  b_.features_over = &group;
  a_.slice = of_layer;
}

}  // namespace lockstep
