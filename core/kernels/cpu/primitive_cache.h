#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/kernels/kernels.h"
#include "dnnl.hpp"

namespace lockstep::cpu {

// The oneDNN side of a rank's kernels: its engine, and the primitives it has compiled, found again by
// shape. Making a primitive costs about as much as running a small one; looking one up does not show.
// oneDNN's scratch comes from the rank's allocator, so that it is booked. dnnl::error becomes a
// CHECK: the shapes were checked before.
class PrimitiveCache {
 public:
  explicit PrimitiveCache(Allocator& allocator);

  // One compiled convolution pass and how its operands must lie in memory.
  struct Convolution {
    dnnl::primitive primitive;
    dnnl::memory::desc plain[3], wanted[3];  // source, weights, destination (or their gradients)
    dnnl::reorder reorders[3];               // null where plain == wanted
    dnnl::memory::desc scratch;
  };
  enum class Pass { kForward, kBackwardInput, kBackwardWeight };

  // Runs a pass of a convolution of `x` [batch, height, width, in] with w [out, kernel, kernel, in]
  // to y; the pass decides which of the three is written.
  void RunConvolution(Pass pass, const Window& window, const Tensor& x, const Tensor& w,
                      const Tensor& y);

  // c[m, n] (+)= a[k, m]^T b[k, n]
  void MatMulTransposedA(const float* a, const float* b, int64_t m, int64_t n, int64_t k,
                         Write write, float* c);

 private:
  using Key = std::vector<int64_t>;

  struct MatMul {
    dnnl::primitive primitive;
    dnnl::memory::desc a, b, c, scratch;
  };

  Convolution MakeConvolution(Pass pass, const Window& window, const Shape& x, const Shape& w,
                              const Shape& y);
  dnnl::memory Memory(const dnnl::memory::desc& desc, void* data) {
    return dnnl::memory(desc, engine_, data);
  }
  Tensor Scratch(const dnnl::memory::desc& desc);

  Allocator& allocator_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::primitive_attr attributes_;
  absl::flat_hash_map<Key, std::unique_ptr<Convolution>> convolutions_;
  absl::flat_hash_map<Key, std::unique_ptr<MatMul>> matmuls_;
};

}  // namespace lockstep::cpu
