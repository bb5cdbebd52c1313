#include "models/testing/double_graph.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "glog/logging.h"

namespace lockstep {

using Value = DoubleGraph::Value;

Value DoubleGraph::Make(Array value, std::function<void(const Array& dy)> backward) {
  const Value made = static_cast<Value>(nodes_.size());
  nodes_.push_back({std::move(value), Array()});
  nodes_.back().gradient = Array(nodes_.back().value.shape);
  if (backward != nullptr) {
    steps_.push_back([this, made, backward = std::move(backward)] { backward(gradient(made)); });
  }
  return made;
}

void DoubleGraph::AddTo(Value x, const Array& dy) {
  Array& gradient = nodes_[x].gradient;
  CHECK_EQ(gradient.elements(), dy.elements());
  for (int64_t i = 0; i < dy.elements(); ++i) gradient.value[i] += dy[i];
}

void DoubleGraph::Backward() {
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) (*step)();
}

Value DoubleGraph::Add(Value a, Value b) {
  return Make(reference::Add(value(a), value(b)), [this, a, b](const Array& dy) {
    AddTo(a, dy);
    AddTo(b, dy);
  });
}

Value DoubleGraph::Relu(Value x) {
  for (double v : value(x).value) closest_kink_ = std::min(closest_kink_, std::abs(v));
  return Make(reference::Relu(value(x)),
              [this, x](const Array& dy) { AddTo(x, reference::ReluBackward(value(x), dy)); });
}

Value DoubleGraph::Gelu(Value x) {
  return Make(reference::Gelu(value(x)),
              [this, x](const Array& dy) { AddTo(x, reference::GeluBackward(value(x), dy)); });
}

Value DoubleGraph::SwiGlu(Value x) {
  return Make(reference::SwiGlu(value(x)),
              [this, x](const Array& dy) { AddTo(x, reference::SwiGluBackward(value(x), dy)); });
}

Value DoubleGraph::Dropout(const lockstep::Dropout& dropout, Value x) {
  return Make(reference::ApplyDropout(dropout, 0, value(x)), [this, dropout, x](const Array& dy) {
    AddTo(x, reference::ApplyDropout(dropout, 0, dy));
  });
}

Value DoubleGraph::Reshape(Value x, const Shape& shape) {
  return Make(Array(shape, value(x).value), [this, x](const Array& dy) { AddTo(x, dy); });
}

Value DoubleGraph::Linear(Value x, Value w, Value bias) {
  const Array none;
  Array y = reference::Linear(value(x), value(w), bias == kNone ? none : value(bias), none);
  y.shape = value(x).shape.With(-1, value(w).shape[0]);
  return Make(std::move(y), [this, x, w, bias](const Array& dy) {
    const reference::LinearGradients gradients = reference::LinearBackward(dy, value(x), value(w));
    AddTo(x, gradients.dx);
    AddTo(w, gradients.dw);
    if (bias != kNone) AddTo(bias, gradients.dbias);
  });
}

Value DoubleGraph::Convolution(Value x, Value w, const Window& window) {
  return Make(reference::Convolution(value(x), value(w), Array(), window),
              [this, x, w, window](const Array& dy) {
                const auto gradients =
                    reference::ConvolutionBackward(dy, value(x), value(w), window);
                AddTo(x, gradients.dx);
                AddTo(w, gradients.dw);
              });
}

Value DoubleGraph::MaxPool(Value x, const Window& window) {
  return Make(reference::MaxPool(value(x), window), [this, x, window](const Array& dy) {
    AddTo(x, reference::MaxPoolBackward(value(x), window, dy));
  });
}

Value DoubleGraph::GlobalAveragePool(Value x) {
  return Make(reference::GlobalAveragePool(value(x)), [this, x](const Array& dy) {
    AddTo(x, reference::GlobalAveragePoolBackward(dy, value(x).shape));
  });
}

Value DoubleGraph::Upsample(Value x) {
  return Make(reference::Upsample(value(x)),
              [this, x](const Array& dy) { AddTo(x, reference::UpsampleBackward(dy)); });
}

Value DoubleGraph::Concatenate(Value a, Value b) {
  return Make(reference::Concatenate(value(a), value(b)), [this, a, b](const Array& dy) {
    Array da(value(a).shape), db(value(b).shape);
    const int64_t left = da.shape[-1], right = db.shape[-1];
    for (int64_t i = 0; i < dy.elements(); ++i) {
      const int64_t row = i / (left + right), column = i % (left + right);
      if (column < left) {
        da.value[row * left + column] = dy[i];
      } else {
        db.value[row * right + column - left] = dy[i];
      }
    }
    AddTo(a, da);
    AddTo(b, db);
  });
}

Value DoubleGraph::BatchNorm(Value x, Value scale, Value shift, double epsilon) {
  return Make(reference::BatchNorm(value(x), value(scale), value(shift), Array(), epsilon,
                                   Activation::kNone)
                  .y,
              [this, x, scale, shift, epsilon](const Array& dy) {
                const auto gradients =
                    reference::BatchNormBackward(value(x), value(scale), epsilon, Array(), dy);
                AddTo(x, gradients.dx);
                AddTo(scale, gradients.dscale);
                AddTo(shift, gradients.dshift);
              });
}

Value DoubleGraph::LayerNorm(Value x, Value scale, Value shift, double epsilon) {
  return Make(reference::LayerNorm(value(x), value(scale), value(shift), epsilon).y,
              [this, x, scale, shift, epsilon](const Array& dy) {
                const auto gradients =
                    reference::LayerNormBackward(value(x), value(scale), epsilon, dy);
                AddTo(x, gradients.dx);
                AddTo(scale, gradients.dscale);
                AddTo(shift, gradients.dshift);
              });
}

Value DoubleGraph::RmsNorm(Value x, Value scale, double epsilon) {
  return Make(reference::RmsNorm(value(x), value(scale), epsilon).y, [this, x, scale,
                                                                      epsilon](const Array& dy) {
    const auto gradients = reference::RmsNormBackward(value(x), value(scale), epsilon, dy);
    AddTo(x, gradients.dx);
    AddTo(scale, gradients.dscale);
  });
}

Value DoubleGraph::Rotate(const Rotation& rotation, Value x, const std::vector<int32_t>& positions,
                          const Array& table) {
  Rotation back = rotation;
  back.direction = Rotation::Direction::kBackward;
  return Make(reference::Rotate(rotation, value(x), positions, table),
              [this, x, back, positions, table](const Array& dy) {
                AddTo(x, reference::Rotate(back, dy, positions, table));
              });
}

Value DoubleGraph::Embedding(const std::vector<int32_t>& ids, Value table, const Shape& shape) {
  return Make(Array(shape, reference::Embedding(ids, value(table)).value),
              [this, ids, table](const Array& dy) {
                AddTo(table, reference::EmbeddingBackward(ids, dy, value(table).shape));
              });
}

Value DoubleGraph::AddPositions(Value x, Value table) {
  return Make(reference::AddPositions(value(x), value(table)), [this, x, table](const Array& dy) {
    AddTo(x, dy);
    AddTo(table, reference::AddPositionsBackward(dy, value(table).shape));
  });
}

Value DoubleGraph::SelfAttention(const Attention& attention, Value qkv) {
  return Make(reference::AttentionForward(attention, value(qkv)).y,
              [this, attention, qkv](const Array& dy) {
                AddTo(qkv, reference::AttentionBackward(attention, value(qkv), dy));
              });
}

Value DoubleGraph::Experts(const Routing& routing, Value x, Value logits, Value gate_up, Value down,
                           int64_t capacity, double auxiliary) {
  // One choice of a row, on its way through its expert.
  struct Choice {
    int64_t row, slot, expert;
    Array x = {}, pre = {}, hidden = {}, made = {}, gate_up = {}, down = {};
  };
  const int64_t k = routing.chosen, width = value(x).shape[-1];
  const auto rows_of = [](const Array& all, int64_t part, int64_t parts) {
    const int64_t elements = all.elements() / parts, columns = all.shape[-1];
    const auto first = all.value.begin() + part * elements;
    return Array(Shape{elements / columns, columns}, std::vector<double>(first, first + elements));
  };
  const Shape flat = {value(x).shape.rows(), width};
  const reference::Routed routed = reference::Route(routing, value(logits), Array());
  std::vector<int64_t> counts(static_cast<size_t>(routing.experts));
  std::vector<Choice> choices;
  Array y(value(x).shape);
  for (size_t i = 0; i < routed.chosen.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) / k, expert = routed.chosen[i];
    if (counts[expert]++ >= capacity) continue;
    Choice c = {.row = row, .slot = static_cast<int64_t>(i), .expert = expert};
    c.x = rows_of(Array(flat, value(x).value), row, flat[0]);
    c.gate_up = rows_of(value(gate_up), expert, routing.experts);
    c.down = rows_of(value(down), expert, routing.experts);
    c.pre = reference::Linear(c.x, c.gate_up, Array(), Array());
    c.hidden = reference::SwiGlu(c.pre);
    c.made = reference::MatMul(c.hidden, Transpose::kNo, c.down, Transpose::kNo);
    for (int64_t j = 0; j < width; ++j) {
      y.value[row * width + j] += routed.weights[c.slot] * c.made[j];
    }
    choices.push_back(std::move(c));
  }
  Array balance(Shape{routing.experts});
  for (int64_t e = 0; e < routing.experts; ++e) {
    const auto rows = static_cast<double>(flat[0]);
    balance.value[e] = auxiliary * static_cast<double>(routing.experts * counts[e]) /
                       (rows * static_cast<double>(k) * rows);
  }
  return Make(std::move(y), [=, this](const Array& dy) {
    Array dx(value(x).shape), dgate_up(value(gate_up).shape), ddown(value(down).shape);
    Array dweights(routed.weights.shape);
    const auto add = [](const Array& part, int64_t index, Array& to) {
      for (int64_t i = 0; i < part.elements(); ++i)
        to.value[index * part.elements() + i] += part[i];
    };
    for (const Choice& c : choices) {
      Array dmade(Shape{1, width});
      for (int64_t j = 0; j < width; ++j) {
        dweights.value[c.slot] += dy[c.row * width + j] * c.made[j];
        dmade.value[j] = routed.weights[c.slot] * dy[c.row * width + j];
      }
      add(reference::MatMul(c.hidden, Transpose::kYes, dmade, Transpose::kNo), c.expert, ddown);
      const Array dpre = reference::SwiGluBackward(
          c.pre, reference::MatMul(dmade, Transpose::kNo, c.down, Transpose::kYes));
      add(reference::MatMul(dpre, Transpose::kYes, c.x, Transpose::kNo), c.expert, dgate_up);
      add(reference::MatMul(dpre, Transpose::kNo, c.gate_up, Transpose::kNo), c.row, dx);
    }
    AddTo(x, dx);
    AddTo(gate_up, dgate_up);
    AddTo(down, ddown);
    AddTo(logits,
          reference::RouteBackward(routing, value(logits), routed.chosen, dweights, balance));
  });
}

double DoubleGraph::CrossEntropy(Value logits, const std::vector<int32_t>& targets, double factor) {
  const auto result = reference::SoftmaxCrossEntropy(value(logits), targets, factor);
  steps_.push_back([this, logits, dlogits = result.dlogits] { AddTo(logits, dlogits); });
  double sum = 0;
  for (double loss : result.losses.value) sum += loss * factor;
  return sum;
}

}  // namespace lockstep
