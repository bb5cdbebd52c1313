#include "core/autograd/sliced_operations.h"

#include <algorithm>
#include <utility>

#include "core/autograd/weight_gradients.h"
#include "core/kernels/feature_leaves.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

using Dimension = GradientSlice::Dimension;
using Kind = WeightProduct::Kind;

Tensor Forward(Kernels& k, const WeightProduct& product, const Tensor& x, const Tensor& w,
               const Tensor& bias = Tensor()) {
  const int64_t out = w.shape()[0];
  if (product.kind == Kind::kConvolution) {
    const Window& window = product.window;
    const Tensor y = k.Empty(
        {x.shape()[0], window.Output(x.shape()[1]), window.Output(x.shape()[2]), out}, x.dtype());
    k.Convolution(x, w, bias, window, y);
    return y;
  }
  const Tensor y = k.Empty(x.shape().With(-1, out), x.dtype());
  if (product.kind == Kind::kGeluLinear) {
    k.GeluLinear(x, w, bias, Tensor(), y);
  } else {
    k.Linear(x, w, bias, Tensor(), y);
  }
  return y;
}

// What backward reads of x: its values, where something wants them, and its shape.
struct Kept {
  Tensor values;
  Shape shape;

  Kept(const Tensor& x, const WeightProduct& product, const Leaf& w)
      : values(w.trainable || product.kind == Kind::kGeluLinear ? x : Tensor()), shape(x.shape()) {}
};

// Those gradients of x, the weight and the bias that are defined.
void Backward(Kernels& k, const WeightProduct& product, const Tensor& dy, const Tensor& x,
              const Tensor& w, const Tensor& dx, Write write, const Tensor& dw,
              const Tensor& dbias = Tensor()) {
  if (product.kind == Kind::kConvolution) {
    if (dx.defined()) k.ConvolutionBackwardInput(dy, w, product.window, dx);
    CHECK(dw.defined() || !dbias.defined()) << "a frozen convolution with a trained bias";
    if (dw.defined()) k.ConvolutionBackwardWeight(dy, x, product.window, write, dw, dbias);
    return;
  }
  const bool has_gelu = product.kind == Kind::kGeluLinear;
  Tensor read = has_gelu ? Tensor() : x;
  if (has_gelu && dw.defined()) {
    read = k.EmptyLike(x);
    k.Gelu(x, read);
  }
  k.LinearBackward(dy, read, w, write, dx, dw, dbias);
  if (has_gelu && dx.defined()) k.GeluBackward(x, dx, dx);
}

// Memory for the gradient of x, if it is wanted.
Tensor GradientOf(Kernels& k, const Kept& x, DType dtype, bool is_wanted) {
  return is_wanted ? k.Empty(x.shape, dtype) : Tensor();
}

std::vector<std::shared_ptr<GradientSlot>> SlotsOf(const Variables& x) {
  std::vector<std::shared_ptr<GradientSlot>> slots;
  for (const Variable& variable : x) slots.push_back(variable.gradient);
  return slots;
}

bool NeedsGradient(const Variables& x) { return x[0].needs_gradient(); }

// One value for the readers of each leaf; `backward` gives the gradient of a leaf's x.
template <typename Step>
Variables Share(Tape& tape, const Tensor& value, size_t leaves, bool needs_gradient,
                const std::vector<Leaf*>& uses, const Step& backward) {
  Variables shared;
  for (size_t i = 0; i < leaves; ++i) {
    shared.push_back(tape.Result(value, needs_gradient));
    tape.Record(shared.back(), uses, [backward, i](Tensor dy) { backward(i, std::move(dy)); });
  }
  return shared;
}

// A linear function, element by element, that is its own backward.
template <typename Function>
Variables ApplyToEach(Tape& tape, const Variables& x, const Function& function) {
  const auto backward = [&k = tape.kernels(), function, x = SlotsOf(x)](
                            size_t i, const Tensor& dy) { x[i]->Add(k, function(dy)); };
  return Share(tape, function(x[0].value), x.size(), NeedsGradient(x), {}, backward);
}

// The parts of some columns [first, first + count), counted from the first of them.
std::vector<Range> Within(const std::vector<Range>& leaf, int64_t first, int64_t count) {
  std::vector<Range> within;
  for (const Range& range : leaf) {
    const int64_t begin = std::max(range.first, first);
    const int64_t end = std::min(range.first + range.count, first + count);
    if (begin < end) within.push_back({begin - first, end - begin});
  }
  return within;
}

// y with x w^T added to its columns from `first` on.
Tensor WithProduct(Kernels& k, const Tensor& y, const Tensor& x, const Tensor& w, int64_t first) {
  const std::vector<Range> columns = {{first, w.shape()[0]}};
  const Tensor before = TakeColumns(k, y, columns), after = k.EmptyLike(before);
  k.Linear(x, w, Tensor(), before, after);
  if (before.same_storage(y)) return after;
  const Tensor sum = k.EmptyLike(y);
  k.Copy(y, sum);
  PutColumns(k, after, columns, sum);
  return sum;
}

// The gradients of a layer whose outputs are cut: of its weight and bias, and of the x that each
// feature leaf reads.
void BackwardByOutputs(Tape& tape, Tape::Half half, const WeightProduct& product, const Tensor& dy,
                       const Kept& x, Leaf& w, Leaf* bias, const FeatureLeaves& outputs,
                       const std::vector<std::shared_ptr<GradientSlot>>& slots) {
  Kernels& k = tape.kernels();
  std::vector<Tensor> dx;
  for (const auto& slot : slots) {
    dx.push_back(GradientOf(k, x, dy.dtype(), half.inputs && slot != nullptr));
  }
  const auto of_rows = [&](const LeafRows& rows, const Destinations& d) {
    const Tensor own_dy = RowsOf(k, dy, rows), own_x = RowsOf(k, x.values, rows);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const GradientSlice dw(k, d[0], Dimension::kFirst, outputs[i], d.write),
          dbias(k, bias ? d[1] : Tensor(), Dimension::kFirst, outputs[i], d.write);
      const RowsToFill own_dx(k, dx[i], rows);
      Backward(k, product, TakeColumns(k, own_dy, outputs[i]), own_x,
               TakeRows(k, w.value, outputs[i]), own_dx.tensor(), d.write, dw.tensor(),
               dbias.tensor());
      dw.Put();
      dbias.Put();
      own_dx.Put();
    }
  };
  ForTokenLeaves(tape, half, {&w, bias}, dy.shape().rows(), of_rows);
  for (size_t i = 0; i < slots.size(); ++i) {
    if (dx[i].defined()) slots[i]->Add(k, std::move(dx[i]));
  }
}

// What one of `leaves` feature leaves contributes to the gradient of a weight that all of them
// read: for each token leaf, in the accumulator of the two.
void AddToLeaf(Tape& tape, const WeightProduct& product, const Tensor& dy, const Tensor& x, Leaf& w,
               size_t feature_leaf, size_t leaves) {
  Kernels& k = tape.kernels();
  size_t accumulator = feature_leaf;
  for (const LeafRows& rows : TokenLeaves(tape, dy.shape().rows())) {
    const auto [destination, write] = w.NextContributionOf(static_cast<int64_t>(accumulator), k);
    Backward(k, product, RowsOf(k, dy, rows), RowsOf(k, x, rows), w.value, Tensor(), write,
             destination);
    accumulator += leaves;
  }
}

}  // namespace

Variables FanOut(Tape& tape, const Variable& x, int64_t leaves) {
  Variables readers;
  for (int64_t i = 0; i < leaves; ++i) {
    readers.push_back(tape.Result(x.value, x.needs_gradient()));
  }
  if (!x.needs_gradient() || !NeedsGradient(readers)) return readers;
  tape.RecordAlways([&k = tape.kernels(), x = x.gradient, slots = SlotsOf(readers)] {
    if (slots[0]->empty()) return;
    x->Add(k, SumOverLeaves(k, static_cast<int64_t>(slots.size()), [&](int64_t i) {
             Tensor gradient = slots[static_cast<size_t>(i)]->Take();
             if (!gradient.shared()) return gradient;
             const Tensor own = k.EmptyLike(gradient);  // nodes are added in place
             k.Copy(gradient, own);
             return own;
           }));
  });
  return readers;
}

Variable SlicedOutputs(Tape& tape, const WeightProduct& product, const Variables& x, Leaf& w,
                       Leaf* bias, const FeatureLeaves& outputs) {
  Kernels& k = tape.kernels();
  Tensor y;
  for (const std::vector<Range>& leaf : outputs) {
    const Tensor own = Forward(k, product, x[0].value, TakeRows(k, w.value, leaf),
                               bias ? TakeRows(k, bias->value, leaf) : Tensor());
    if (!y.defined()) y = k.Empty(own.shape().With(-1, w.value.shape()[0]), own.dtype());
    PutColumns(k, own, leaf, y);
  }
  Variable out = tape.Result(y, NeedsGradient(x) || Trains(&w) || Trains(bias));
  auto backward = [&tape, &k, product, x = SlotsOf(x), kept = Kept(x[0].value, product, w), &w,
                   bias, outputs](Tensor dy) {
    const auto compute = [&tape, &k, product, x, kept, &w, bias, outputs, dy](Tape::Half half) {
      BackwardByOutputs(tape, half, product, dy, kept, w, bias, outputs, x);
    };
    tape.ComputeGradients({&w, bias}, compute);
  };
  tape.Record(out, {&w, bias}, std::move(backward));
  return out;
}

LeafSum SlicedInputs(Tape& tape, const WeightProduct& product, const Variable& x, Leaf& w,
                     const FeatureLeaves& inputs) {
  Kernels& k = tape.kernels();
  LeafSum sum;
  for (const std::vector<Range>& leaf : inputs) {
    sum.values.push_back(
        Forward(k, product, TakeColumns(k, x.value, leaf), TakeColumns(k, w.value, leaf)));
  }
  const Variable out = tape.Result(sum.values[0], x.needs_gradient() || Trains(&w));
  auto backward = [&tape, &k, product, x = x.gradient, kept = Kept(x.value, product, w), &w,
                   inputs](Tensor dy) {
    tape.ComputeGradients({&w}, [&tape, &k, product, x, kept, &w, inputs, dy](Tape::Half half) {
      const Tensor dx = GradientOf(k, kept, dy.dtype(), half.inputs && x != nullptr);
      const auto of_rows = [&](const LeafRows& rows, const Destinations& d) {
        const Tensor own_dy = RowsOf(k, dy, rows), own_x = RowsOf(k, kept.values, rows);
        const RowsToFill own_dx(k, dx, rows);
        for (const std::vector<Range>& leaf : inputs) {
          const GradientSlice dw(k, d[0], Dimension::kLast, leaf, d.write);
          const Tensor of_leaf = own_x.defined() ? TakeColumns(k, own_x, leaf) : Tensor();
          const Tensor into =
              dx.defined() ? k.Empty(own_dx.tensor().shape().With(-1, FeaturesOf(leaf)), dy.dtype())
                           : Tensor();
          Backward(k, product, own_dy, of_leaf, TakeColumns(k, w.value, leaf), into, d.write,
                   dw.tensor());
          dw.Put();
          if (into.defined()) PutColumns(k, into, leaf, own_dx.tensor());
        }
        own_dx.Put();
      };
      ForTokenLeaves(tape, half, {&w}, dy.shape().rows(), of_rows);
      if (dx.defined()) x->Add(k, dx);
    });
  };
  tape.Record(out, {&w}, std::move(backward));
  sum.gradient = out.gradient;
  return sum;
}

Variable AddUp(Tape& tape, LeafSum sum) {
  Kernels& k = tape.kernels();
  const Tensor value = SumOverLeaves(k, static_cast<int64_t>(sum.values.size()), [&](int64_t i) {
    return std::exchange(sum.values[static_cast<size_t>(i)], Tensor());
  });
  Variable out = tape.Result(value, sum.gradient != nullptr);
  tape.Record(out, [&k, slot = sum.gradient](Tensor dy) { slot->Add(k, std::move(dy)); });
  return out;
}

Variables ApplyDropout(Tape& tape, const Dropout& dropout, const Variables& x,
                       int64_t first_element) {
  if (dropout.probability == 0) return x;
  return ApplyToEach(tape, x, [&k = tape.kernels(), dropout, first_element](const Tensor& from) {
    Tensor to = k.EmptyLike(from);
    k.ApplyDropout(dropout, first_element, from, to);
    return to;
  });
}

Variables Scale(Tape& tape, const Variables& x, float factor) {
  return ApplyToEach(tape, x, [&k = tape.kernels(), factor](const Tensor& from) {
    Tensor to = k.EmptyLike(from);
    k.Scale(from, factor, to);
    return to;
  });
}

LeafSum Scale(Tape& tape, LeafSum x, float factor) {
  Kernels& k = tape.kernels();
  for (const Tensor& value : x.values) k.Scale(value, factor, value);
  const Variable out = tape.Result(x.values[0], x.gradient != nullptr);
  tape.Record(out, [&k, factor, slot = std::move(x.gradient)](Tensor dy) {
    const Tensor dx = k.EmptyLike(dy);
    k.Scale(dy, factor, dx);
    slot->Add(k, dx);
  });
  x.gradient = out.gradient;
  return x;
}

Variables Product(Tape& tape, const WeightProduct& product, const Variables& x, Leaf& w) {
  Kernels& k = tape.kernels();
  const size_t leaves = x.size();
  const auto backward = [&tape, &k, product, x = SlotsOf(x), kept = Kept(x[0].value, product, w),
                         &w, leaves](size_t i, const Tensor& dy) {
    const auto compute = [&tape, &k, product, x = x[i], kept, &w, leaves, i, dy](Tape::Half half) {
      const Tensor dx = GradientOf(k, kept, dy.dtype(), half.inputs && x != nullptr);
      if (half.weights && Trains(&w)) {
        AddToLeaf(tape, product, dy, kept.values, w, i, leaves);
      }
      if (!dx.defined()) return;
      Backward(k, product, dy, kept.values, w.value, dx, Write::kOverwrite, Tensor());
      x->Add(k, dx);
    };
    tape.ComputeGradients({&w}, compute);
  };
  return Share(tape, Forward(k, product, x[0].value, w.value), leaves,
               NeedsGradient(x) || Trains(&w), {&w}, backward);
}

Variable AddProduct(Tape& tape, Variable y, const Variables& x, Leaf& w, int64_t first,
                    const FeatureLeaves& outputs) {
  Kernels& k = tape.kernels();
  const int64_t columns = w.value.shape()[0];
  Variable out = tape.Result(WithProduct(k, y.value, x[0].value, w.value, first),
                             y.needs_gradient() || NeedsGradient(x) || Trains(&w));
  auto backward = [&tape, &k, x = SlotsOf(x), kept = Kept(x[0].value, {}, w), y = y.gradient, &w,
                   first, columns, outputs](Tensor dy) {
    if (y != nullptr) y->Add(k, dy);
    const Tensor part = TakeColumns(k, dy, {{first, columns}});
    std::vector<std::vector<Range>> own;
    for (const std::vector<Range>& leaf : outputs) own.push_back(Within(leaf, first, columns));
    tape.ComputeGradients({&w}, [&tape, x, kept, &w, own, part](Tape::Half half) {
      BackwardByOutputs(tape, half, {}, part, kept, w, nullptr, own, x);
    });
  };
  tape.Record(out, {&w}, std::move(backward));
  return out;
}

LeafSum AddProduct(Tape& tape, LeafSum y, const LeafSum& x, Leaf& w, int64_t first) {
  Kernels& k = tape.kernels();
  for (size_t i = 0; i < y.values.size(); ++i) {
    y.values[i] = WithProduct(k, y.values[i], x.values[i], w.value, first);
  }
  const Variable out =
      tape.Result(y.values[0], y.gradient != nullptr || x.gradient != nullptr || Trains(&w));
  const int64_t columns = w.value.shape()[0];
  auto backward = [&tape, &k, x, y = std::move(y.gradient), &w, first, columns](Tensor dy) {
    if (y != nullptr) y->Add(k, dy);
    const Tensor part = TakeColumns(k, dy, {{first, columns}});
    tape.ComputeGradients({&w}, [&tape, &k, x, &w, part](Tape::Half half) {
      if (half.inputs && x.gradient != nullptr) {
        const Tensor dx = k.EmptyLike(x.values[0]);
        Backward(k, {}, part, Tensor(), w.value, dx, Write::kOverwrite, Tensor());
        x.gradient->Add(k, dx);
      }
      if (!half.weights || !Trains(&w)) return;
      for (size_t i = 0; i < x.values.size(); ++i) {
        AddToLeaf(tape, {}, part, x.values[i], w, i, x.values.size());
      }
    });
  };
  tape.Record(out, {&w}, std::move(backward));
  y.gradient = out.gradient;
  return y;
}

}  // namespace lockstep
