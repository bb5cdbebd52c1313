// A network in double precision that knows its gradients, for tests to write a model a second time
// and compare: the plain loops of core/kernels/reference.h, strung together, one unfused operation
// at a time. It shares nothing with the tape, the layers or the kernels.

#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "core/kernels/kernels.h"
#include "core/kernels/reference.h"

namespace lockstep {

class DoubleGraph {
 public:
  using Array = reference::Array;
  using Value = int;  // names an intermediate result
  static constexpr Value kNone = -1;

  // Where results start: inputs and parameters.
  Value Input(Array value) { return Make(std::move(value)); }

  Value Add(Value a, Value b);
  Value Relu(Value x);
  Value Gelu(Value x);
  Value SwiGlu(Value x);
  Value Dropout(const lockstep::Dropout& dropout, Value x);
  Value Reshape(Value x, const Shape& shape);
  // x w^T + bias; x [..., in], w [out, in], bias may be kNone.
  Value Linear(Value x, Value w, Value bias);
  Value Convolution(Value x, Value w, const Window& window);
  Value MaxPool(Value x, const Window& window);
  Value GlobalAveragePool(Value x);
  Value Upsample(Value x);
  Value Concatenate(Value a, Value b);
  Value BatchNorm(Value x, Value scale, Value shift, double epsilon);
  Value LayerNorm(Value x, Value scale, Value shift, double epsilon);
  Value RmsNorm(Value x, Value scale, double epsilon);
  // `rotation` forward; table is a constant.
  Value Rotate(const Rotation& rotation, Value x, const std::vector<int32_t>& positions,
               const Array& table);
  Value Embedding(const std::vector<int32_t>& ids, Value table, const Shape& shape);
  Value AddPositions(Value x, Value table);
  Value SelfAttention(const Attention& attention, Value qkv);

  // What the experts of each row of x [..., width] make of it, times their weights: each is
  // SwiGlu(x gate_up(e)^T) down(e), with gate_up [experts * 2 * hidden, width] and down [experts *
  // hidden, width]. The experts take the first `capacity` choices each. `auxiliary` times the
  // load-balancing loss is added to what gradients are of.
  Value Experts(const Routing& routing, Value x, Value logits, Value gate_up, Value down,
                int64_t capacity, double auxiliary);

  // The sum of the rows' cross entropies times `factor`; its gradient is 1 when Backward starts.
  double CrossEntropy(Value logits, const std::vector<int32_t>& targets, double factor);

  // Adds `dy` to the gradient of `x`, for Backward to start from.
  void Seed(Value x, const Array& dy) { AddTo(x, dy); }
  // Runs once, after all operations.
  void Backward();

  const Array& value(Value x) const { return nodes_[x].value; }
  // Zeros where nothing depended on x.
  const Array& gradient(Value x) const { return nodes_[x].gradient; }

  // The smallest magnitude that any Relu has seen: where it lies within the errors of fp32, an
  // implementation may be right and let the gradient pass where this one does not.
  double closest_kink() const { return closest_kink_; }

 private:
  struct Node {
    Array value, gradient;
  };
  // `backward` passes on the gradient of the value that is made.
  Value Make(Array value, std::function<void(const Array& dy)> backward = nullptr);
  void AddTo(Value x, const Array& dy);

  std::vector<Node> nodes_;
  std::vector<std::function<void()>> steps_;
  double closest_kink_ = std::numeric_limits<double>::infinity();
};

}  // namespace lockstep
