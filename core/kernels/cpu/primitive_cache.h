#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/kernels/kernels.h"
#include "dnnl.hpp"

namespace lockstep::cpu {

// The oneDNN side of a rank's kernels: its engine, and the primitives it has compiled, found again
// by shape. Making a primitive costs about as much as running a small one; looking one up does not
// show. oneDNN's scratch comes from the rank's allocator, so that it is booked. dnnl::error becomes
// a CHECK: the shapes were checked before.
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

  // A compiled product c[m, n] = a b (+ bias) (+ what c holds) for one thread: linear layers run
  // many of them side by side, a tile of rows each.
  struct TileShape {
    int64_t m, n, k;
    Transpose transpose_a = Transpose::kNo, transpose_b = Transpose::kNo;  // as they lie in memory
    enum class B { kPlain, kPacked } b = B::kPlain;  // packed: as Pack laid it out
    enum class Bias { kNone, kRow } bias = Bias::kNone;
    Write write = Write::kOverwrite;
  };
  struct Tile {
    dnnl::matmul primitive;
    dnnl::memory::desc a, b, c, bias, scratch;
  };
  const Tile& GetTile(const TileShape& shape);

  // Runs a tile; safe on several threads at once. `scratch`: ScratchBytes of its own for each.
  void RunTile(const Tile& tile, const float* a, const float* b, const float* bias, float* c,
               void* scratch);

  // b[k, n] (or its transpose) rearranged as `tile` reads it. Weights are packed once a call, not
  // once a tile.
  Tensor Pack(const Tile& tile, const TileShape& shape, const Tensor& b);

 private:
  using Key = std::vector<int64_t>;

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
  absl::flat_hash_map<Key, std::unique_ptr<Tile>> tiles_;
  absl::flat_hash_map<Key, dnnl::reorder> packings_;
};

}  // namespace lockstep::cpu
