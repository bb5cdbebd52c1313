#include <algorithm>
#include <utility>

#include "core/autograd/sliced_operations.h"
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
  Kept(Kernels& k, const Kept& whole, const std::vector<Range>& columns)
      : values(whole.values.defined() ? TakeColumns(k, whole.values, columns) : Tensor()),
        shape(whole.shape.With(-1, FeaturesOf(columns))) {}
};

// The gradients of x where `wants_input`, and those of the weight and the bias where they are
// defined.
Tensor Backward(Kernels& k, const WeightProduct& product, const Tensor& dy, const Kept& x,
                const Tensor& w, bool wants_input, Write write, const Tensor& dw,
                const Tensor& dbias) {
  const Tensor dx = wants_input ? k.Empty(x.shape, dy.dtype()) : Tensor();
  if (product.kind == Kind::kConvolution) {
    if (wants_input) k.ConvolutionBackwardInput(dy, w, product.window, dx);
    CHECK(dw.defined() || !dbias.defined()) << "a frozen convolution with a trained bias";
    if (dw.defined()) k.ConvolutionBackwardWeight(dy, x.values, product.window, write, dw, dbias);
    return dx;
  }
  const bool has_gelu = product.kind == Kind::kGeluLinear;
  Tensor read = has_gelu ? Tensor() : x.values;
  if (has_gelu && dw.defined()) {
    read = k.EmptyLike(x.values);
    k.Gelu(x.values, read);
  }
  k.LinearBackward(dy, read, w, write, dx, dw, dbias);
  if (has_gelu && wants_input) k.GeluBackward(x.values, dx, dx);
  return dx;
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
    const auto compute = [&k, product, x, kept, &w, bias, outputs, dy](Tape::Half half) {
      const Destinations d = NextContributions(k, half, {&w, bias});
      const bool wants_input = half.inputs && x[0] != nullptr;
      for (size_t i = 0; i < outputs.size(); ++i) {
        const GradientSlice dw(k, d[0], Dimension::kFirst, outputs[i], d.write),
            dbias(k, d[1], Dimension::kFirst, outputs[i], d.write);
        Tensor dx = Backward(k, product, TakeColumns(k, dy, outputs[i]), kept,
                             TakeRows(k, w.value, outputs[i]), wants_input, d.write, dw.tensor(),
                             dbias.tensor());
        dw.Put();
        dbias.Put();
        if (wants_input) x[i]->Add(k, std::move(dx));
      }
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
    tape.ComputeGradients({&w}, [&k, product, x, kept, &w, inputs, dy](Tape::Half half) {
      const Destinations d = NextContributions(k, half, {&w});
      const bool wants_input = half.inputs && x != nullptr;
      const Tensor dx = wants_input ? k.Empty(kept.shape, dy.dtype()) : Tensor();
      for (const std::vector<Range>& leaf : inputs) {
        const GradientSlice dw(k, d[0], Dimension::kLast, leaf, d.write);
        const Tensor own =
            Backward(k, product, dy, Kept(k, kept, leaf), TakeColumns(k, w.value, leaf),
                     wants_input, d.write, dw.tensor(), Tensor());
        dw.Put();
        if (wants_input) PutColumns(k, own, leaf, dx);
      }
      if (wants_input) x->Add(k, dx);
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

Variables ApplyDropout(Tape& tape, const Dropout& dropout, const Variables& x) {
  if (dropout.probability == 0) return x;
  return ApplyToEach(tape, x, [&k = tape.kernels(), dropout](const Tensor& from) {
    Tensor to = k.EmptyLike(from);
    k.ApplyDropout(dropout, 0, from, to);
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
    tape.ComputeGradients({&w}, [&k, product, x = x[i], kept, &w, leaves, i, dy](Tape::Half half) {
      Leaf::Destination d = {};
      if (half.weights && Trains(&w)) d = w.NextContribution(k, i, leaves);
      const bool wants_input = half.inputs && x != nullptr;
      Tensor dx = Backward(k, product, dy, kept, w.value, wants_input, d.write, d.tensor, Tensor());
      if (wants_input) x->Add(k, std::move(dx));
    });
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
    tape.ComputeGradients({&w}, [&k, x, kept, &w, first, columns, outputs, part](Tape::Half half) {
      const Destinations d = NextContributions(k, half, {&w});
      const bool wants_input = half.inputs && x[0] != nullptr;
      for (size_t i = 0; i < outputs.size(); ++i) {
        const std::vector<Range> leaf = Within(outputs[i], first, columns);
        const GradientSlice dw(k, d[0], Dimension::kFirst, leaf, d.write);
        Tensor dx = Backward(k, {}, TakeColumns(k, part, leaf), kept, TakeRows(k, w.value, leaf),
                             wants_input, d.write, dw.tensor(), {});
        dw.Put();
        if (wants_input) x[i]->Add(k, std::move(dx));
      }
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
    tape.ComputeGradients({&w}, [&k, x, &w, part](Tape::Half half) {
      if (half.inputs && x.gradient != nullptr) {
        x.gradient->Add(k, Backward(k, {}, part, Kept(x.values[0], {}, w), w.value, true,
                                    Write::kOverwrite, Tensor(), Tensor()));
      }
      if (!half.weights || !Trains(&w)) return;
      for (size_t i = 0; i < x.values.size(); ++i) {
        const auto [destination, write] = w.NextContribution(k, i, x.values.size());
        Backward(k, {}, part, Kept(x.values[i], {}, w), w.value, false, write, destination,
                 Tensor());
      }
    });
  };
  tape.Record(out, {&w}, std::move(backward));
  y.gradient = out.gradient;
  return y;
}

}  // namespace lockstep
