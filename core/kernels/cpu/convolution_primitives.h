#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/kernels/kernels.h"
#include "dnnl.hpp"

namespace lockstep::cpu {

// The convolutions of a rank, compiled by oneDNN for their shapes and kept: making one costs about
// as much as running a small one; looking one up does not show. oneDNN's scratch comes from the
// rank's allocator, so that it is booked. dnnl::error becomes a crash: the shapes were checked
// before.
class ConvolutionPrimitives {
 public:
  explicit ConvolutionPrimitives(Allocator& allocator);

  enum class Pass { kForward, kBackwardInput, kBackwardWeight };

  // Runs a pass of a convolution of `x` [batch, height, width, in] with w [out, kernel, kernel, in]
  // to y; the pass decides which of the three is written. All are fp32, or all bf16 but a w that is
  // written, which may be fp32. `bias` [out] is added in forward, and may be undefined.
  void Run(Pass pass, const Window& window, const Tensor& x, const Tensor& w, const Tensor& bias,
           const Tensor& y);

 private:
  using Key = std::vector<int64_t>;

  // One compiled pass and how its operands must lie in memory.
  struct Convolution {
    dnnl::primitive primitive;
    dnnl::memory::desc plain[3], wanted[3];  // source, weights, destination (or their gradients)
    dnnl::reorder reorders[3];               // null where plain == wanted
    dnnl::memory::desc bias;
    dnnl::memory::desc scratch;
  };

  Convolution Make(Pass pass, const Window& window, const Tensor& x, const Tensor& w,
                   const Tensor& bias, const Tensor& y);
  dnnl::memory Memory(const dnnl::memory::desc& desc, void* data) {
    return dnnl::memory(desc, engine_, data);
  }
  Tensor Scratch(const dnnl::memory::desc& desc);

  Allocator& allocator_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::primitive_attr attributes_;
  absl::flat_hash_map<Key, std::unique_ptr<Convolution>> convolutions_;
};

}  // namespace lockstep::cpu
