#include "core/autograd/operations.h"

#include <algorithm>  // std::any_of
#include <memory>
#include <utility>
#include <vector>

#include "core/autograd/weight_gradients.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

bool Needs(const Variable* v) { return v != nullptr && v->needs_gradient(); }
Tensor ValueOf(const Leaf* leaf) { return leaf == nullptr ? Tensor() : leaf->value; }
std::shared_ptr<GradientSlot> SlotOf(const Variable* v) {
  return v == nullptr ? nullptr : v->gradient;
}

// Adds to the gradient of something that may not want one.
void AddTo(Kernels& kernels, const std::shared_ptr<GradientSlot>& slot, Tensor gradient) {
  if (slot != nullptr) slot->Add(kernels, std::move(gradient));
}

}  // namespace

Variable Add(Tape& tape, const Variable& a, const Variable& b) {
  Kernels& k = tape.kernels();
  Tensor y = k.EmptyLike(a.value);
  k.Add(a.value, b.value, y);
  Variable out = tape.Result(y, a.needs_gradient() || b.needs_gradient());
  tape.Record(out, [&k, a = a.gradient, b = b.gradient](Tensor dy) {
    AddTo(k, a, dy);
    AddTo(k, b, std::move(dy));
  });
  return out;
}

Variable Relu(Tape& tape, const Variable& x) {
  Kernels& k = tape.kernels();
  Tensor y = k.EmptyLike(x.value);
  k.Relu(x.value, y);
  Variable out = tape.Result(y, x.needs_gradient());
  tape.Record(out, [&k, y, x = x.gradient](Tensor dy) {
    Tensor dx = k.EmptyLike(dy);
    k.ReluBackward(y, dy, dx);
    x->Add(k, std::move(dx));
  });
  return out;
}

Variable Gelu(Tape& tape, const Variable& x) {
  Kernels& k = tape.kernels();
  Tensor y = k.EmptyLike(x.value);
  k.Gelu(x.value, y);
  Variable out = tape.Result(y, x.needs_gradient());
  tape.Record(out, [&k, x = x](Tensor dy) {
    Tensor dx = k.EmptyLike(dy);
    k.GeluBackward(x.value, dy, dx);
    x.gradient->Add(k, std::move(dx));
  });
  return out;
}

Variable SwiGlu(Tape& tape, const Variable& x) {
  Kernels& k = tape.kernels();
  Tensor y = k.Empty(x.shape().With(-1, x.shape()[-1] / 2), x.value.dtype());
  k.SwiGlu(x.value, y);
  Variable out = tape.Result(y, x.needs_gradient());
  tape.Record(out, [&k, x = x](Tensor dy) {
    Tensor dx = k.EmptyLike(x.value);
    k.SwiGluBackward(x.value, dy, dx);
    x.gradient->Add(k, std::move(dx));
  });
  return out;
}

Variable ApplyDropout(Tape& tape, const Dropout& dropout, const Variable& x,
                      int64_t first_element) {
  if (dropout.probability == 0) return x;
  Kernels& k = tape.kernels();
  Tensor y = k.EmptyLike(x.value);
  k.ApplyDropout(dropout, first_element, x.value, y);
  Variable out = tape.Result(y, x.needs_gradient());
  tape.Record(out, [&k, dropout, first_element, x = x.gradient](Tensor dy) {
    Tensor dx = k.EmptyLike(dy);
    k.ApplyDropout(dropout, first_element, dy, dx);
    x->Add(k, std::move(dx));
  });
  return out;
}

Variable ApplyDropoutToColumns(Tape& tape, const Dropout& dropout, const Variable& x,
                               int64_t first_column, int64_t columns, int64_t first_element) {
  const int64_t own = x.shape()[-1];
  if (dropout.probability == 0 || own == columns) {
    return ApplyDropout(tape, dropout, x, first_element);
  }
  Kernels& k = tape.kernels();
  // Masks belong to ranges of elements: the columns take their places among all for a moment.
  const auto apply = [=, &k](const Tensor& from) {
    Tensor whole = k.Empty(from.shape().With(-1, columns), from.dtype());
    k.Fill(whole, 0);
    k.CopyColumns(from, 0, own, whole, first_column);
    k.ApplyDropout(dropout, first_element, whole, whole);
    Tensor to = k.EmptyLike(from);
    k.CopyColumns(whole, first_column, own, to, 0);
    return to;
  };
  Variable out = tape.Result(apply(x.value), x.needs_gradient());
  tape.Record(out, [&k, apply, x = x.gradient](Tensor dy) { x->Add(k, apply(dy)); });
  return out;
}

Variable Scale(Tape& tape, const Variable& x, float factor) {
  Kernels& k = tape.kernels();
  Tensor y = k.EmptyLike(x.value);
  k.Scale(x.value, factor, y);
  Variable out = tape.Result(y, x.needs_gradient());
  tape.Record(out, [&k, factor, x = x.gradient](Tensor dy) {
    Tensor dx = k.EmptyLike(dy);
    k.Scale(dy, factor, dx);
    x->Add(k, std::move(dx));
  });
  return out;
}

Variable Reshape(Tape& tape, const Variable& x, const Shape& shape) {
  Variable out = tape.Result(x.value.Reshape(shape), x.needs_gradient());
  tape.Record(out, [&k = tape.kernels(), from = x.shape(), x = x.gradient](Tensor dy) {
    x->Add(k, dy.Reshape(from));
  });
  return out;
}

Variable Linear(Tape& tape, const Variable& x, Leaf& w, Leaf* bias, const Variable* residual,
                const SummedLeaves& leaves) {
  Kernels& k = tape.kernels();
  Tensor y = k.Empty(x.shape().With(-1, w.value.shape()[0]), x.value.dtype());
  if (leaves.inputs.empty()) {
    k.Linear(x.value, w.value, ValueOf(bias), residual ? residual->value : Tensor(), y);
  } else {
    CHECK(bias == nullptr && residual == nullptr) << "they are added behind the tree";
    k.LinearByLeaves(x.value, w.value, leaves.inputs, y);
  }
  Variable out =
      tape.Result(y, x.needs_gradient() || Needs(residual) || Trains(&w) || Trains(bias));
  // Backward reads the input only for the weight's gradient.
  Tensor kept = Trains(&w) ? x.value : Tensor();
  auto backward = [&tape, &k, kept, shape = x.shape(), x = x.gradient, &w, bias,
                   residual = SlotOf(residual), outputs = leaves.outputs](Tensor dy) {
    AddTo(k, residual, dy);
    const auto compute = [&tape, &k, kept, shape, x, &w, bias, outputs, dy](Tape::Half half) {
      Tensor dx = half.inputs && x != nullptr ? k.Empty(shape, dy.dtype()) : Tensor();
      const auto of_rows = [&](const LeafRows& rows, const Destinations& d) {
        const Tensor own_dy = RowsOf(k, dy, rows), own_x = RowsOf(k, kept, rows);
        const RowsToFill own_dx(k, dx, rows);
        if (outputs.empty()) {
          k.LinearBackward(own_dy, own_x, w.value, d.write, own_dx.tensor(), d[0], d[1]);
        } else {
          k.LinearBackwardByLeaves(own_dy, own_x, w.value, outputs, d.write, own_dx.tensor(), d[0],
                                   d[1]);
        }
        own_dx.Put();
      };
      ForTokenLeaves(tape, half, {&w, bias}, shape.rows(), of_rows);
      if (dx.defined()) x->Add(k, std::move(dx));
    };
    tape.ComputeGradients({&w, bias}, compute);
  };
  tape.Record(out, {&w, bias}, std::move(backward));
  return out;
}

Variable AddBias(Tape& tape, Variable x, Leaf* bias, const Variable* residual) {
  Kernels& k = tape.kernels();
  Tensor y = x.value.shared() ? k.EmptyLike(x.value) : x.value;
  k.AddBias(x.value, ValueOf(bias), residual ? residual->value : Tensor(), y);
  Variable out = tape.Result(y, x.needs_gradient() || Needs(residual) || Trains(bias));
  auto backward = [&tape, &k, x = x.gradient, bias, residual = SlotOf(residual)](Tensor dy) {
    AddTo(k, residual, dy);
    tape.ComputeGradients({bias}, [&tape, &k, x, bias, dy](Tape::Half half) {
      if (half.inputs) AddTo(k, x, dy);
      if (!half.weights) return;
      ForTokenLeaves(tape, half, {bias}, dy.shape().rows(),
                     [&](const LeafRows& rows, const Destinations& d) {
                       k.ColumnSums(RowsOf(k, dy, rows), d.write, d[0]);
                     });
    });
  };
  tape.Record(out, {bias}, std::move(backward));
  return out;
}

Variable AddProduct(Tape& tape, Variable y, const Variable& x, Leaf& w, int64_t first) {
  const int64_t width = y.shape()[-1], columns = w.value.shape()[0];
  if (columns == width) return Linear(tape, x, w, nullptr, &y);
  Kernels& k = tape.kernels();
  Tensor sum = y.value.shared() ? k.EmptyLike(y.value) : y.value;
  if (y.value.shared()) k.Copy(y.value, sum);
  const Tensor before = k.Empty(y.shape().With(-1, columns), y.value.dtype());
  const Tensor after = k.EmptyLike(before);
  k.CopyColumns(sum, first, columns, before, 0);
  k.Linear(x.value, w.value, Tensor(), before, after);
  k.CopyColumns(after, 0, columns, sum, first);
  Variable out = tape.Result(sum, y.needs_gradient() || x.needs_gradient() || Trains(&w));
  auto backward = [&tape, &k, x, y = y.gradient, &w, first, columns](Tensor dy) {
    AddTo(k, y, dy);
    Tensor part = k.Empty(dy.shape().With(-1, columns), dy.dtype());
    k.CopyColumns(dy, first, columns, part, 0);
    tape.ComputeGradients({&w}, [&tape, &k, x, &w, part](Tape::Half half) {
      Tensor dx = half.inputs && x.needs_gradient() ? k.EmptyLike(x.value) : Tensor();
      ForTokenLeaves(tape, half, {&w}, part.shape().rows(),
                     [&](const LeafRows& rows, const Destinations& d) {
                       const RowsToFill own_dx(k, dx, rows);
                       k.LinearBackward(RowsOf(k, part, rows), RowsOf(k, x.value, rows), w.value,
                                        d.write, own_dx.tensor(), d[0], Tensor());
                       own_dx.Put();
                     });
      if (dx.defined()) x.gradient->Add(k, std::move(dx));
    });
  };
  tape.Record(out, {&w}, std::move(backward));
  return out;
}

Variable ApplyGeluMlp(Tape& tape, const Variable& x, const GeluMlp& mlp, const Variable* residual) {
  Kernels& k = tape.kernels();
  const DType dtype = x.value.dtype();
  Tensor pre = k.Empty(x.shape().With(-1, mlp.up.value.shape()[0]), dtype);
  Tensor y = k.Empty(x.shape().With(-1, mlp.down.value.shape()[0]), dtype);
  if (mlp.leaves.empty()) {
    k.GeluMlp(x.value, mlp.up.value, mlp.up_bias.value, mlp.down.value, ValueOf(mlp.down_bias),
              residual ? residual->value : Tensor(), pre, y);
  } else {
    CHECK(mlp.down_bias == nullptr && residual == nullptr) << "they are added behind the tree";
    k.GeluMlpByLeaves(x.value, mlp.up.value, mlp.up_bias.value, mlp.down.value, mlp.leaves, pre, y);
  }
  const std::vector<Leaf*> leaves = {&mlp.up, &mlp.up_bias, &mlp.down, mlp.down_bias};
  const bool trains = std::any_of(leaves.begin(), leaves.end(), Trains);
  Variable out = tape.Result(y, x.needs_gradient() || Needs(residual) || trains);
  auto backward = [&tape, &k, x, n = mlp, leaves, pre, residual = SlotOf(residual)](Tensor dy) {
    AddTo(k, residual, dy);
    tape.ComputeGradients(leaves, [&tape, &k, x, n, pre, dy](Tape::Half half) {
      Tensor dx = half.inputs && x.needs_gradient() ? k.EmptyLike(x.value) : Tensor();
      const auto of_rows = [&](const LeafRows& rows, const Destinations& d) {
        const Tensor own_x = RowsOf(k, x.value, rows), own_pre = RowsOf(k, pre, rows),
                     own_dy = RowsOf(k, dy, rows);
        const RowsToFill own_dx(k, dx, rows);
        const Kernels::GeluMlpGradients gradients = {own_dx.tensor(), d[0], d[1], d[2], d[3]};
        if (n.leaves.empty()) {
          k.GeluMlpBackward(own_x, own_pre, n.up.value, n.down.value, own_dy, d.write, gradients);
        } else {
          k.GeluMlpBackwardByLeaves(own_x, own_pre, n.up.value, n.down.value, n.leaves, own_dy,
                                    d.write, gradients);
        }
        own_dx.Put();
      };
      ForTokenLeaves(tape, half, {&n.up, &n.up_bias, &n.down, n.down_bias}, dy.shape().rows(),
                     of_rows);
      if (dx.defined()) x.gradient->Add(k, std::move(dx));
    });
  };
  tape.Record(out, leaves, std::move(backward));
  return out;
}

Variable GeluLinear(Tape& tape, const Variable& pre, Leaf& w, Leaf* bias,
                    const Variable* residual) {
  Kernels& k = tape.kernels();
  Tensor y = k.Empty(pre.shape().With(-1, w.value.shape()[0]), pre.value.dtype());
  k.GeluLinear(pre.value, w.value, ValueOf(bias), residual ? residual->value : Tensor(), y);
  Variable out =
      tape.Result(y, pre.needs_gradient() || Needs(residual) || Trains(&w) || Trains(bias));
  auto backward = [&tape, &k, pre, &w, bias, residual = SlotOf(residual)](Tensor dy) {
    AddTo(k, residual, dy);
    tape.ComputeGradients({&w, bias}, [&tape, &k, pre, &w, bias, dy](Tape::Half half) {
      Tensor gelu;
      if (half.weights && Trains(&w)) {
        gelu = k.EmptyLike(pre.value);
        k.Gelu(pre.value, gelu);
      }
      Tensor dx = half.inputs && pre.needs_gradient() ? k.EmptyLike(pre.value) : Tensor();
      ForTokenLeaves(tape, half, {&w, bias}, dy.shape().rows(),
                     [&](const LeafRows& rows, const Destinations& d) {
                       const RowsToFill own_dx(k, dx, rows);
                       k.LinearBackward(RowsOf(k, dy, rows), RowsOf(k, gelu, rows), w.value,
                                        d.write, own_dx.tensor(), d[0], d[1]);
                       own_dx.Put();
                     });
      if (!dx.defined()) return;
      k.GeluBackward(pre.value, dx, dx);
      pre.gradient->Add(k, std::move(dx));
    });
  };
  tape.Record(out, {&w, bias}, std::move(backward));
  return out;
}

Variable SwiGluLinear(Tape& tape, const Variable& pre, Leaf& w, const Variable* residual,
                      const FeatureLeaves& inputs) {
  Kernels& k = tape.kernels();
  const auto activate = [&k, pre = pre.value] {
    Tensor hidden = k.Empty(pre.shape().With(-1, pre.shape()[-1] / 2), pre.dtype());
    k.SwiGlu(pre, hidden);
    return hidden;
  };
  Tensor y = k.Empty(pre.shape().With(-1, w.value.shape()[0]), pre.value.dtype());
  if (inputs.empty()) {
    k.Linear(activate(), w.value, Tensor(), residual ? residual->value : Tensor(), y);
  } else {
    CHECK(residual == nullptr) << "it is added behind the tree";
    k.LinearByLeaves(activate(), w.value, inputs, y);
  }
  Variable out = tape.Result(y, pre.needs_gradient() || Needs(residual) || Trains(&w));
  auto backward = [&tape, &k, activate, pre, &w, residual = SlotOf(residual)](Tensor dy) {
    AddTo(k, residual, dy);
    tape.ComputeGradients({&w}, [&tape, &k, activate, pre, &w, dy](Tape::Half half) {
      const Tensor hidden = half.weights && Trains(&w) ? activate() : Tensor();
      const Tensor dhidden =
          half.inputs && pre.needs_gradient()
              ? k.Empty(pre.shape().With(-1, w.value.shape()[1]), pre.value.dtype())
              : Tensor();
      ForTokenLeaves(tape, half, {&w}, dy.shape().rows(),
                     [&](const LeafRows& rows, const Destinations& d) {
                       const RowsToFill own_dhidden(k, dhidden, rows);
                       k.LinearBackward(RowsOf(k, dy, rows), RowsOf(k, hidden, rows), w.value,
                                        d.write, own_dhidden.tensor(), d[0], Tensor());
                       own_dhidden.Put();
                     });
      if (!dhidden.defined()) return;
      Tensor dpre = k.EmptyLike(pre.value);
      k.SwiGluBackward(pre.value, dhidden, dpre);
      pre.gradient->Add(k, std::move(dpre));
    });
  };
  tape.Record(out, {&w}, std::move(backward));
  return out;
}

Variable Convolution(Tape& tape, const Variable& x, Leaf& w, Leaf* bias, const Window& window) {
  Kernels& k = tape.kernels();
  const Shape& s = x.shape();
  Tensor y = k.Empty({s[0], window.Output(s[1]), window.Output(s[2]), w.value.shape()[0]},
                     x.value.dtype());
  k.Convolution(x.value, w.value, ValueOf(bias), window, y);
  Variable out = tape.Result(y, x.needs_gradient() || Trains(&w) || Trains(bias));
  // Backward reads the input only for the weight's gradient.
  Tensor kept = Trains(&w) ? x.value : Tensor();
  auto backward = [&tape, &k, kept, shape = s, x = x.gradient, &w, bias, window](Tensor dy) {
    tape.ComputeGradients({&w, bias}, [&k, kept, shape, x, &w, bias, window, dy](Tape::Half half) {
      if (half.inputs && x != nullptr) {
        Tensor dx = k.Empty(shape, dy.dtype());
        k.ConvolutionBackwardInput(dy, w.value, window, dx);
        x->Add(k, std::move(dx));
      }
      if (!half.weights) return;
      const Destinations d = NextContributions(k, half, {&w, bias});
      CHECK(d[0].defined()) << "a frozen convolution with a trained bias";
      k.ConvolutionBackwardWeight(dy, kept, window, d.write, d[0], d[1]);
    });
  };
  tape.Record(out, {&w, bias}, std::move(backward));
  return out;
}

Variable MaxPool(Tape& tape, const Variable& x, const Window& window) {
  Kernels& k = tape.kernels();
  const Shape& s = x.shape();
  Tensor y = k.Empty({s[0], window.Output(s[1]), window.Output(s[2]), s[3]}, x.value.dtype());
  k.MaxPool(x.value, window, y);
  Variable out = tape.Result(y, x.needs_gradient());
  // In training, what made x and what reads y keep them too.
  tape.Record(out, [&k, x, window, y](Tensor dy) {
    Tensor dx = k.EmptyLike(x.value);
    k.MaxPoolBackward(x.value, window, y, dy, dx);
    x.gradient->Add(k, std::move(dx));
  });
  return out;
}

Variable GlobalAveragePool(Tape& tape, const Variable& x) {
  Kernels& k = tape.kernels();
  const Shape& s = x.shape();
  Tensor y = k.Empty({s[0], s[3]}, x.value.dtype());
  k.GlobalAveragePool(x.value, y);
  Variable out = tape.Result(y, x.needs_gradient());
  tape.Record(out, [&k, shape = s, x = x.gradient](Tensor dy) {
    Tensor dx = k.Empty(shape, dy.dtype());
    k.GlobalAveragePoolBackward(dy, dx);
    x->Add(k, std::move(dx));
  });
  return out;
}

Variable Upsample(Tape& tape, const Variable& x) {
  Kernels& k = tape.kernels();
  const Shape& s = x.shape();
  Tensor y = k.Empty({s[0], 2 * s[1], 2 * s[2], s[3]}, x.value.dtype());
  k.Upsample(x.value, y);
  Variable out = tape.Result(y, x.needs_gradient());
  tape.Record(out, [&k, shape = s, x = x.gradient](Tensor dy) {
    Tensor dx = k.Empty(shape, dy.dtype());
    k.UpsampleBackward(dy, dx);
    x->Add(k, std::move(dx));
  });
  return out;
}

Variable Concatenate(Tape& tape, const Variable& a, const Variable& b) {
  Kernels& k = tape.kernels();
  CHECK_EQ(a.shape().rows(), b.shape().rows());
  const int64_t left = a.shape()[-1], right = b.shape()[-1];
  Tensor y = k.Empty(a.shape().With(-1, left + right), a.value.dtype());
  k.CopyColumns(a.value, 0, left, y, 0);
  k.CopyColumns(b.value, 0, right, y, left);
  Variable out = tape.Result(y, a.needs_gradient() || b.needs_gradient());
  tape.Record(out, [&k, a = a.gradient, b = b.gradient, shape_a = a.shape(),
                    shape_b = b.shape()](Tensor dy) {
    const auto give = [&](const std::shared_ptr<GradientSlot>& slot, const Shape& shape,
                          int64_t first) {
      if (slot == nullptr) return;
      Tensor gradient = k.Empty(shape, dy.dtype());
      k.CopyColumns(dy, first, shape[-1], gradient, 0);
      slot->Add(k, std::move(gradient));
    };
    give(a, shape_a, 0);
    give(b, shape_b, shape_a[-1]);
  });
  return out;
}

Variable BatchNorm(Tape& tape, const Variable& x, Leaf& scale, Leaf& shift,
                   const Variable* residual, const BatchNormOptions& options, const Tensor& mean,
                   const Tensor& variance) {
  Kernels& k = tape.kernels();
  Tensor y = k.EmptyLike(x.value);
  Tensor of_device =
      k.BatchNorm(x.value, scale.value, shift.value, residual ? residual->value : Tensor(),
                  options.epsilon, options.activation, y, mean, variance);
  Variable out =
      tape.Result(y, x.needs_gradient() || Needs(residual) || scale.trainable || shift.trainable);
  // Backward needs the output only to know where the activation let gradients pass.
  Tensor kept = options.activation == Activation::kNone ? Tensor() : y;
  auto backward = [&tape, &k, x, &scale, &shift, kept, mean, variance, of_device,
                   epsilon = options.epsilon, residual = SlotOf(residual)](Tensor dy) {
    // One kernel gives all gradients: there is no half of it to defer.
    const Destinations d =
        NextContributions(k, {.inputs = true, .weights = true}, {&scale, &shift});
    Tensor dx = k.EmptyLike(x.value);
    Tensor dresidual = residual ? k.EmptyLike(dy) : Tensor();
    k.BatchNormBackward(x.value, scale.value, mean, variance, of_device, epsilon, kept, dy, dx,
                        dresidual, d.write, d[0], d[1]);
    AddTo(k, x.gradient, std::move(dx));
    AddTo(k, residual, std::move(dresidual));
    tape.CountDown({&scale, &shift});
  };
  tape.Record(out, {&scale, &shift}, std::move(backward));
  return out;
}

Variable BatchNormByEstimate(Tape& tape, const Variable& x, const Leaf& scale, const Leaf& shift,
                             const Variable* residual, const BatchNormOptions& options,
                             const Tensor& mean, const Tensor& variance) {
  CHECK(!scale.trainable && !shift.trainable) << "normalised by an estimate, but trained";
  Kernels& k = tape.kernels();
  Tensor y = k.EmptyLike(x.value);
  k.BatchNormInference(x.value, scale.value, shift.value, residual ? residual->value : Tensor(),
                       mean, variance, options.epsilon, options.activation, y);
  Variable out = tape.Result(y, x.needs_gradient() || Needs(residual));
  Tensor kept = options.activation == Activation::kNone ? Tensor() : y;
  tape.Record(out, [&k, &scale, kept, variance, epsilon = options.epsilon, x = x.gradient,
                    residual = SlotOf(residual)](Tensor dy) {
    Tensor passed = dy;
    if (kept.defined()) {
      passed = k.EmptyLike(dy);
      k.ReluBackward(kept, dy, passed);
    }
    AddTo(k, residual, passed);
    if (x == nullptr) return;
    // The same affine function, without its constant.
    Tensor zeros = k.Empty(variance.shape());
    k.Fill(zeros, 0);
    Tensor dx = k.EmptyLike(passed);
    k.BatchNormInference(passed, scale.value, zeros, Tensor(), zeros, variance, epsilon,
                         Activation::kNone, dx);
    x->Add(k, std::move(dx));
  });
  return out;
}

Variable LayerNorm(Tape& tape, const Variable& x, Leaf& scale, Leaf& shift, float epsilon) {
  Kernels& k = tape.kernels();
  Tensor y = k.EmptyLike(x.value);
  Tensor mean = k.Empty({x.shape().rows()}), inverse_stddev = k.Empty({x.shape().rows()});
  k.LayerNorm(x.value, scale.value, shift.value, epsilon, y, mean, inverse_stddev);
  Variable out = tape.Result(y, x.needs_gradient() || scale.trainable || shift.trainable);
  auto backward = [&tape, &k, x, &scale, &shift, mean, inverse_stddev](Tensor dy) {
    // What the residual path has already brought is added while dx is written.
    Tensor pending = x.needs_gradient() ? x.gradient->Take() : Tensor();
    Tensor dx = pending.defined() && !pending.shared() ? pending : k.EmptyLike(x.value);
    ForTokenLeaves(tape, {.inputs = true, .weights = true}, {&scale, &shift}, dy.shape().rows(),
                   [&](const LeafRows& rows, const Destinations& d) {
                     const RowsToFill own_dx(k, dx, rows);
                     k.LayerNormBackward(RowsOf(k, x.value, rows), scale.value,
                                         RowsOf(k, mean, rows), RowsOf(k, inverse_stddev, rows),
                                         RowsOf(k, dy, rows), RowsOf(k, pending, rows),
                                         own_dx.tensor(), d.write, d[0], d[1]);
                     own_dx.Put();
                   });
    AddTo(k, x.gradient, std::move(dx));
    tape.CountDown({&scale, &shift});
  };
  tape.Record(out, {&scale, &shift}, std::move(backward));
  return out;
}

Variable RmsNorm(Tape& tape, const Variable& x, Leaf& scale, float epsilon) {
  Kernels& k = tape.kernels();
  Tensor y = k.EmptyLike(x.value);
  Tensor inverse_rms = k.Empty({x.shape().rows()});
  k.RmsNorm(x.value, scale.value, epsilon, y, inverse_rms);
  Variable out = tape.Result(y, x.needs_gradient() || scale.trainable);
  auto backward = [&tape, &k, x, &scale, inverse_rms](Tensor dy) {
    // What the residual path has already brought is added while dx is written.
    Tensor pending = x.needs_gradient() ? x.gradient->Take() : Tensor();
    Tensor dx = pending.defined() && !pending.shared() ? pending : k.EmptyLike(x.value);
    ForTokenLeaves(tape, {.inputs = true, .weights = true}, {&scale}, dy.shape().rows(),
                   [&](const LeafRows& rows, const Destinations& d) {
                     const RowsToFill own_dx(k, dx, rows);
                     k.RmsNormBackward(RowsOf(k, x.value, rows), scale.value,
                                       RowsOf(k, inverse_rms, rows), RowsOf(k, dy, rows),
                                       RowsOf(k, pending, rows), own_dx.tensor(), d.write, d[0]);
                     own_dx.Put();
                   });
    AddTo(k, x.gradient, std::move(dx));
    tape.CountDown({&scale});
  };
  tape.Record(out, {&scale}, std::move(backward));
  return out;
}

Variable Embedding(Tape& tape, const Variable& ids, Leaf& table) {
  Kernels& k = tape.kernels();
  std::vector<int64_t> dims(ids.shape().dims().begin(), ids.shape().dims().end());
  dims.push_back(table.value.shape()[1]);
  Tensor y = k.Empty(Shape(dims), table.value.dtype());
  k.Embedding(ids.value, table.value, y);
  Variable out = tape.Result(y, table.trainable);
  tape.Record(out, {&table}, [&tape, &k, ids = ids.value, &table](Tensor dy) {
    tape.ComputeGradients({&table}, [&tape, &k, ids, &table, dy](Tape::Half half) {
      if (!half.weights) return;
      const Tensor list = ids.Reshape({ids.elements()});
      ForTokenLeaves(
          tape, half, {&table}, ids.elements(), [&](const LeafRows& rows, const Destinations& d) {
            k.EmbeddingBackward(RowsOf(k, list, rows), RowsOf(k, dy, rows), d.write, d[0]);
          });
    });
  });
  return out;
}

Variable AddPositions(Tape& tape, const Variable& x, Leaf& positions) {
  Kernels& k = tape.kernels();
  Tensor y = k.EmptyLike(x.value);
  k.AddPositions(x.value, positions.value, y);
  Variable out = tape.Result(y, x.needs_gradient() || positions.trainable);
  tape.Record(out, {&positions}, [&tape, &k, x = x.gradient, &positions](Tensor dy) {
    tape.ComputeGradients({&positions}, [&k, x, dy, &positions](Tape::Half half) {
      if (half.inputs) AddTo(k, x, dy);
      if (!half.weights) return;
      auto [destination, write] = positions.NextContribution(k);
      k.AddPositionsBackward(dy, write, destination);
    });
  });
  return out;
}

Variable Rotate(Tape& tape, Variable x, int64_t heads, int64_t head_width, const Tensor& positions,
                const Tensor& table) {
  Kernels& k = tape.kernels();
  using Direction = Rotation::Direction;
  const auto turn = [&k, heads, head_width, positions, table](const Tensor& from,
                                                              Direction direction) {
    Tensor to = from.shared() ? k.EmptyLike(from) : from;
    k.Rotate({.heads = heads, .head_width = head_width, .direction = direction}, from, positions,
             table, to);
    return to;
  };
  Variable out = tape.Result(turn(x.value, Direction::kForward), x.needs_gradient());
  tape.Record(out, [&k, turn, x = x.gradient](const Tensor& dy) {
    x->Add(k, turn(dy, Direction::kBackward));
  });
  return out;
}

Variable SelfAttention(Tape& tape, const Variable& qkv, const Attention& attention,
                       int64_t leaves) {
  Kernels& k = tape.kernels();
  const int64_t batch = qkv.shape()[0], time = qkv.shape()[1];
  Tensor y = k.Empty({batch, time, attention.query_width()}, qkv.value.dtype());
  Tensor log_sum_exp = k.Empty({batch, attention.heads, time});
  if (leaves == 1) {
    k.AttentionForward(attention, qkv.value, y, log_sum_exp);
  } else {
    k.AttentionForwardByTokenLeaves(attention, leaves, qkv.value, y, log_sum_exp);
  }
  Variable out = tape.Result(y, qkv.needs_gradient());
  tape.Record(out, [&k, qkv, attention, leaves, y, log_sum_exp](Tensor dy) {
    Tensor dqkv = k.EmptyLike(qkv.value);
    if (leaves == 1) {
      k.AttentionBackward(attention, qkv.value, y, log_sum_exp, dy, dqkv);
    } else {
      k.AttentionBackwardByTokenLeaves(attention, leaves, qkv.value, y, log_sum_exp, dy, dqkv);
    }
    qkv.gradient->Add(k, std::move(dqkv));
  });
  return out;
}

CrossEntropy SoftmaxCrossEntropy(Tape& tape, Variable logits, int64_t classes,
                                 const Tensor& targets, float factor) {
  Kernels& k = tape.kernels();
  CrossEntropy result{k.Empty({targets.elements()})};
  Tensor dlogits;
  if (logits.needs_gradient()) {
    dlogits = logits.value.shared() ? k.EmptyLike(logits.value) : logits.value;
  }
  k.SoftmaxCrossEntropy(logits.value, classes, targets, factor, result.losses, dlogits);
  if (logits.needs_gradient()) {
    tape.RecordAlways(
        [&k, slot = logits.gradient, dlogits]() mutable { slot->Add(k, std::move(dlogits)); });
  }
  return result;
}

}  // namespace lockstep
