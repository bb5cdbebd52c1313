#include "core/autograd/expert_products.h"

#include <iterator>  // std::ssize
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/autograd/expert_weights.h"
#include "core/kernels/feature_leaves.h"

namespace lockstep {
namespace {

using Leaves = std::vector<std::vector<Range>>;
using Slots = std::vector<std::shared_ptr<GradientSlot>>;

// All features as one leaf where they are not cut.
Leaves AtLeastOne(const FeatureLeaves& leaves, int64_t features) {
  if (!leaves.empty()) return leaves;
  return {{Range{.first = 0, .count = features}}};
}

int64_t RowsOfExpert(const Leaf& w, const ExpertRanges& rows) {
  return w.value.shape()[0] / rows.experts();
}

Tensor OfExpert(Kernels& k, const Leaf& w, const ExpertRanges& rows, int64_t expert) {
  return RowsOf(k, w.value, WeightRows(w.value, rows, expert));
}

Slots SlotsOf(const Variables& x) {
  Slots slots;
  for (const Variable& variable : x) slots.push_back(variable.gradient);
  return slots;
}

// A dispatched tensor, of which write(expert, range, rows of the tensor) writes the rows of each
// expert.
template <typename WriteRows>
Tensor Dispatched(Kernels& k, const ExpertRanges& rows, int64_t features, DType dtype,
                  WriteRows&& write) {
  Tensor to = k.Empty({rows.dispatched(), features}, dtype);
  ForExperts(rows, [&](int64_t expert, const Range& own) {
    const RowsToFill own_to(k, to, own);
    write(expert, own, own_to.tensor());
    own_to.Put();
  });
  FillUnused(k, rows, to);
  return to;
}

// x w(e)^T, and x w(e): products as forward makes them, without gradients of their weights.
Tensor TimesTransposed(Kernels& k, const Tensor& x, const Leaf& w, const ExpertRanges& rows) {
  const auto write = [&](int64_t expert, const Range& own, const Tensor& y) {
    k.Linear(RowsOf(k, x, own), OfExpert(k, w, rows, expert), Tensor(), Tensor(), y);
  };
  return Dispatched(k, rows, RowsOfExpert(w, rows), x.dtype(), write);
}
Tensor Times(Kernels& k, const Tensor& x, const Leaf& w, const ExpertRanges& rows,
             const std::vector<Range>& features) {
  const auto write = [&](int64_t expert, const Range& own, const Tensor& y) {
    k.LinearBackward(TakeColumns(k, RowsOf(k, x, own), features), Tensor(),
                     TakeRows(k, OfExpert(k, w, rows, expert), features), Write::kOverwrite, y,
                     Tensor(), Tensor());
  };
  return Dispatched(k, rows, w.value.shape()[1], x.dtype(), write);
}

// The gradient of a weight with rows dy^T x of each expert, in these destinations: of the rows of
// one leaf, or of all.
void WriteGradient(Kernels& k, const Tensor& dy, const Tensor& x, const Leaf& w,
                   const ExpertRanges& rows, std::optional<int64_t> leaf, const Destinations& d) {
  const auto of_expert = [&](int64_t expert, const Range& own) {
    const ExpertGradient dw(k, d, rows, expert);
    k.LinearBackward(RowsOf(k, dy, own), RowsOf(k, x, own), OfExpert(k, w, rows, expert), d.write,
                     Tensor(), dw.tensor(), Tensor());
    dw.Put();
  };
  ForExperts(rows, leaf, of_expert, [&](int64_t expert) { AddNothing(k, d, rows, expert); });
}

void AddGradient(Tape& tape, Tape::Half half, const Tensor& dy, const Tensor& x, Leaf& w,
                 const ExpertRanges& rows) {
  if (!half.weights || !Trains(&w)) return;
  ForLeaves(tape, half, {&w}, rows.leaves(),
            [&](std::optional<int64_t> leaf, const Destinations& d) {
              WriteGradient(tape.kernels(), dy, x, w, rows, leaf, d);
            });
}

// As AddGradient, from one of several feature leaves that each read all of the weight: each token
// leaf's gradient goes into the accumulator of that token leaf and this feature leaf.
void AddGradientOfLeaf(Tape& tape, Tape::Half half, const Tensor& dy, const Tensor& x, Leaf& w,
                       const ExpertRanges& rows, int64_t feature_leaf, int64_t feature_leaves) {
  if (feature_leaves == 1) return AddGradient(tape, half, dy, x, w, rows);
  if (!half.weights || !Trains(&w)) return;
  Kernels& k = tape.kernels();
  for (int64_t leaf = 0; leaf < rows.leaves(); ++leaf) {
    const auto [tensor, write] = w.NextContributionOf(leaf * feature_leaves + feature_leaf, k);
    WriteGradient(k, dy, x, w, rows, leaf, {.tensors = {tensor}, .write = write});
  }
}

// y + x w(e)^T.
Tensor Sum(Kernels& k, const Tensor& y, const Tensor& x, const Leaf& w, const ExpertRanges& rows) {
  const auto write = [&](int64_t expert, const Range& own, const Tensor& sum) {
    k.Linear(RowsOf(k, x, own), OfExpert(k, w, rows, expert), Tensor(), RowsOf(k, y, own), sum);
  };
  return Dispatched(k, rows, y.shape()[-1], y.dtype(), write);
}

// The gradients of what each leaf reads, of a product whose outputs are cut.
void AddInputGradients(Kernels& k, const Tensor& dy, const Leaf& w, const ExpertRanges& rows,
                       const Leaves& outputs, const Slots& slots) {
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] != nullptr) slots[i]->Add(k, Times(k, dy, w, rows, outputs[i]));
  }
}

}  // namespace

Variable ExpertOutputs(Tape& tape, const Variables& x, Leaf& w, const SharedRanges& rows,
                       const FeatureLeaves& outputs) {
  Kernels& k = tape.kernels();
  Variable out =
      tape.Result(TimesTransposed(k, x[0].value, w, *rows), x[0].needs_gradient() || Trains(&w));
  const Tensor kept = w.trainable ? x[0].value : Tensor();
  auto backward = [&tape, &k, slots = SlotsOf(x), kept, &w, rows,
                   leaves = AtLeastOne(outputs, RowsOfExpert(w, *rows))](const Tensor& dy) {
    tape.ComputeGradients({&w}, [&tape, &k, slots, kept, &w, rows, leaves, dy](Tape::Half half) {
      AddGradient(tape, half, dy, kept, w, *rows);
      if (half.inputs) AddInputGradients(k, dy, w, *rows, leaves, slots);
    });
  };
  tape.Record(out, {&w}, std::move(backward));
  return out;
}

Variables ExpertProduct(Tape& tape, const Variables& x, Leaf& w, const SharedRanges& rows) {
  Kernels& k = tape.kernels();
  const Tensor value = TimesTransposed(k, x[0].value, w, *rows);
  const Tensor kept = w.trainable ? x[0].value : Tensor();
  const int64_t leaves = std::ssize(x);
  Variables shared;
  for (int64_t i = 0; i < leaves; ++i) {
    shared.push_back(tape.Result(value, x[0].needs_gradient() || Trains(&w)));
    auto backward = [&tape, &k, x = x[i].gradient, kept, &w, rows, i, leaves](const Tensor& dy) {
      tape.ComputeGradients({&w}, [&tape, &k, x, kept, &w, rows, i, leaves, dy](Tape::Half half) {
        AddGradientOfLeaf(tape, half, dy, kept, w, *rows, i, leaves);
        if (!half.inputs || x == nullptr) return;
        x->Add(k, Times(k, dy, w, *rows, {{.first = 0, .count = dy.shape()[-1]}}));
      });
    };
    tape.Record(shared.back(), {&w}, std::move(backward));
  }
  return shared;
}

Variable AddExpertProduct(Tape& tape, const Variable& y, const Variables& x, Leaf& w,
                          const SharedRanges& rows, const FeatureLeaves& outputs) {
  Kernels& k = tape.kernels();
  Variable out = tape.Result(Sum(k, y.value, x[0].value, w, *rows),
                             y.needs_gradient() || x[0].needs_gradient() || Trains(&w));
  const Tensor kept = w.trainable ? x[0].value : Tensor();
  auto backward = [&tape, &k, y = y.gradient, slots = SlotsOf(x), kept, &w, rows,
                   leaves = AtLeastOne(outputs, y.shape()[-1])](const Tensor& dy) {
    if (y != nullptr) y->Add(k, dy);
    tape.ComputeGradients({&w}, [&tape, &k, slots, kept, &w, rows, leaves, dy](Tape::Half half) {
      AddGradient(tape, half, dy, kept, w, *rows);
      if (half.inputs) AddInputGradients(k, dy, w, *rows, leaves, slots);
    });
  };
  tape.Record(out, {&w}, std::move(backward));
  return out;
}

LeafSum ExpertInputs(Tape& tape, const Variable& x, Leaf& w, const SharedRanges& rows,
                     const FeatureLeaves& inputs) {
  Kernels& k = tape.kernels();
  LeafSum sum;
  for (const std::vector<Range>& leaf : AtLeastOne(inputs, x.shape()[-1])) {
    sum.values.push_back(Times(k, x.value, w, *rows, leaf));
  }
  const Variable out = tape.Result(sum.values[0], x.needs_gradient() || Trains(&w));
  const Tensor kept = w.trainable ? x.value : Tensor();
  auto backward = [&tape, &k, x = x.gradient, kept, &w, rows](const Tensor& dy) {
    tape.ComputeGradients({&w}, [&tape, &k, x, kept, &w, rows, dy](Tape::Half half) {
      // An expert's rows of the weight are its inputs: their gradient is x^T dy.
      AddGradient(tape, half, kept, dy, w, *rows);
      if (half.inputs && x != nullptr) x->Add(k, TimesTransposed(k, dy, w, *rows));
    });
  };
  tape.Record(out, {&w}, std::move(backward));
  sum.gradient = out.gradient;
  return sum;
}

LeafSum AddExpertProduct(Tape& tape, LeafSum y, const LeafSum& x, Leaf& w,
                         const SharedRanges& rows) {
  Kernels& k = tape.kernels();
  for (size_t i = 0; i < y.values.size(); ++i) {
    y.values[i] = Sum(k, y.values[i], x.values[i], w, *rows);
  }
  const Variable out =
      tape.Result(y.values[0], y.gradient != nullptr || x.gradient != nullptr || Trains(&w));
  auto backward = [&tape, &k, x, y = std::move(y.gradient), &w, rows](const Tensor& dy) {
    if (y != nullptr) y->Add(k, dy);
    tape.ComputeGradients({&w}, [&tape, &k, x, &w, rows, dy](Tape::Half half) {
      const int64_t leaves = std::ssize(x.values);
      for (int64_t i = 0; i < leaves; ++i) {
        AddGradientOfLeaf(tape, half, dy, x.values[i], w, *rows, i, leaves);
      }
      if (!half.inputs || x.gradient == nullptr) return;
      x.gradient->Add(k, Times(k, dy, w, *rows, {{.first = 0, .count = dy.shape()[-1]}}));
    });
  };
  tape.Record(out, {&w}, std::move(backward));
  y.gradient = out.gradient;
  return y;
}

}  // namespace lockstep
