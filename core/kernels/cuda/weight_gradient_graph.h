// Gradients of convolutions' weights by cuDNN's graph API, which reads 16-bit tensors and writes
// the sums in fp32. cuDNN's older calls write a gradient in its operands' dtype alone.

#pragma once

#include <cudnn.h>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>

#include "core/kernels/cuda/cudnn.h"
#include "core/kernels/cuda/graph_descriptor.h"
#include "core/kernels/cuda/images.h"
#include "core/kernels/options.h"
#include "core/tensor/allocator.h"
#include "core/tensor/tensor.h"

namespace lockstep::cuda {

// dw [out, kernel, kernel, in], fp32, of x [batch, height, width, in] and dy [batch, h', w', out],
// both fp16 or bf16.
struct WeightGradientShape {
  DType dtype = DType::kBF16;  // of x and dy
  Images x = {}, dy = {};
  int kernel = 3, stride = 1, padding = 0;

  auto operator<=>(const WeightGradientShape&) const = default;
};

// A weight gradient, described to cuDNN; needs no GPU. A StatusException, Unimplemented, says why
// where cuDNN refuses the description.
//
// There are two operations: the gradient, whose result is virtual, and an identity that writes it.
// cuDNN 9.19 has kernels for operands of 16 bits and sums in fp32 where it may put together what
// computes the sums and what stores them, and proposes none for the gradient alone.
class WeightGradientOperations {
 public:
  explicit WeightGradientOperations(const WeightGradientShape& shape);

  // Sets the operations of a graph.
  void AddTo(GraphDescriptor& graph) const;

 private:
  // cuDNN does not document that descriptors outlive what they are set from.
  GraphDescriptor x_, dy_, sums_, dw_, convolution_, identity_;
  GraphDescriptor gradient_, store_;
};

// Whether the engine of a configuration adds up the operands as they are, in fp32, with bits that
// repeat, by the notes that cuDNN has for it. Notes of later versions are taken to say that it does
// not.
bool Serves(const GraphDescriptor& configuration);

// The weight gradients of a rank. What cuDNN has for a shape is found out by its first call, and
// kept.
class WeightGradientGraphs {
 public:
  // The rank's cuDNN outlives it.
  explicit WeightGradientGraphs(Cudnn& cudnn);
  ~WeightGradientGraphs();
  WeightGradientGraphs(const WeightGradientGraphs&) = delete;
  WeightGradientGraphs& operator=(const WeightGradientGraphs&) = delete;

  // Queues the gradient, which overwrites dw, and returns true; or returns false, and the caller
  // computes, where cuDNN has no plan that serves, which is logged for the first such shape. The
  // tensors are those of WeightGradientShape. Workspace comes from the allocator.
  [[nodiscard]] bool Run(Allocator& allocator, const Window& window, const Tensor& x,
                         const Tensor& dy, const Tensor& dw);

 private:
  struct Graph;

  // Null: cuDNN has none.
  const Graph* GraphOf(const WeightGradientShape& shape);

  Cudnn& cudnn_;
  std::map<WeightGradientShape, std::unique_ptr<const Graph>> graphs_;  // null: cannot be made
  bool has_told_ = false;
};

}  // namespace lockstep::cuda
