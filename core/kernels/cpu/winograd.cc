#include "core/kernels/cpu/winograd.h"

#include <immintrin.h>  // SSE, which every x86-64 has

#include <algorithm>

#include "core/base/parallel.h"
#include "core/kernels/cpu/row_tiles.h"  // Scratch
#include "core/kernels/cpu/tile_gemm.h"
#include "core/kernels/cpu/tile_kernel.h"  // kBlockColumns
#include "core/kernels/cpu/wide.h"
#include "core/kernels/cpu/winograd_strips.h"
#include "core/kernels/cpu/winograd_transforms.h"
#include "glog/logging.h"

namespace lockstep::cpu {
namespace {

using winograd::kGap;
using winograd::kLanes;
using winograd::kPatch;
using winograd::kPoints;
using winograd::kTile;
using winograd::Strips;

// to[i * 16 + j] = from[j * stride + i]
void TransposeLanes(const float* from, int64_t stride, float* to) {
  constexpr int kSide = 4;
  for (int j = 0; j < kLanes; j += kSide) {
    for (int i = 0; i < kLanes; i += kSide) {
      __m128 rows[kSide];
      for (int r = 0; r < kSide; ++r) rows[r] = _mm_loadu_ps(from + (j + r) * stride + i);
      _MM_TRANSPOSE4_PS(rows[0], rows[1], rows[2], rows[3]);
      for (int r = 0; r < kSide; ++r) _mm_storeu_ps(to + (i + r) * kLanes + j, rows[r]);
    }
  }
}

// The weights of a convolution as matrices [k, n], one a point, packed as right operands.
class Weights {
 public:
  // Forward, k = in and n = out of w [out, 3, 3, in]. Backward, k = out and n = in, and the window
  // is turned by half a circle.
  Weights(Kernels& kernels, const Tensor& w, bool forward)
      : w_(Wide(kernels, w)), forward_(forward), out_(w.shape()[0]), in_(w.shape()[3]) {}

  int64_t k() const { return forward_ ? in_ : out_; }
  int64_t n() const { return forward_ ? out_ : in_; }

  // Writes rows first .. first + kLanes of a panel of all matrices, each of which has its panel at
  // to + point * plane.
  void TransformRows(int64_t first, const PanelRange& panel, float* to, int64_t plane) const {
    constexpr int64_t kSquare = kLanes * kLanes;
    alignas(64) float lanes[9 * kSquare];  // [window, row, column]
    to += first * panel.width;
    for (int64_t column = 0; column < panel.width; column += kLanes) {
      for (int i = 0; i < 9; ++i) LoadLanes(i, first, panel.first + column, lanes + i * kSquare);
      for (int64_t row = 0; row < kLanes; ++row) {
        winograd::Transform2d<winograd::WeightTransform>(lanes + row * kLanes, 3 * kSquare, kSquare,
                                                         to + row * panel.width + column, plane);
      }
    }
  }

 private:
  // to[16, 16] = weight i of the window for rows of k from `row` and columns of n from `column` on.
  void LoadLanes(int i, int64_t row, int64_t column, float* to) const {
    const float* w = w_.data<float>();
    if (forward_) return TransposeLanes(w + (column * 9 + i) * in_ + row, 9 * in_, to);
    for (int64_t r = 0; r < kLanes; ++r) {
      std::copy_n(w + ((row + r) * 9 + (8 - i)) * in_ + column, kLanes, to + r * kLanes);
    }
  }

  Tensor w_;
  bool forward_;
  int64_t out_, in_;
};

// y = the convolution of x with the weights, plus bias.
class Convolution {
 public:
  Convolution(CpuKernels& kernels, const Tensor& x, const Weights& weights, const Tensor& bias,
              const Tensor& y)
      : kernels_(kernels),
        x_(x),
        weights_(weights),
        bias_(Wide(kernels, bias)),
        y_(y),
        strips_(x),
        k_(weights.k()),
        n_(weights.n()) {
    CHECK_EQ(x.shape()[3], k_);
    CHECK_EQ(y.shape()[3], n_);
  }

  // Which of the two ways is faster; both give the same bits.
  void Run() {
    constexpr int64_t kHeavy = int64_t{256} * 512, kWide = 256;
    const bool few_tiles = strips_.count() * strips_.wide <= kSharedTiles && n_ >= kWide;
    k_* n_ >= kHeavy || few_tiles ? RunByPanels() : RunByTiles();
  }

 private:
  // Tiles that are transformed before they are multiplied: so many that the weights, which come
  // from afar for each group, are paid for, while what lies between the transforms stays near.
  static constexpr int64_t kOwnTiles = 32, kSharedTiles = 128;

  int64_t StripsOf(int64_t tiles) const { return std::max<int64_t>(1, tiles / strips_.wide); }
  int64_t PatchRow() const { return winograd::PatchPixels(strips_) * k_; }

  // All weights are transformed first. Then each thread takes tiles of its own, from their inputs
  // to their outputs.
  void RunByTiles() {
    const int64_t plane = PackedRightSize(k_, n_) + kGap;
    const Tensor packed = kernels_.Empty({kPoints * plane}, DType::kF32, MemoryClass::kWorkspace);
    ParallelFor(k_ / kLanes, 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        for (int64_t i = 0; i < RightPanels(n_); ++i) {
          const PanelRange panel = PanelOf(n_, i);
          weights_.TransformRows(block * kLanes, panel, packed.data<float>() + panel.first * k_,
                                 plane);
        }
      }
    });
    const int64_t longest = StripsOf(kOwnTiles), tiles = longest * strips_.wide;
    const int64_t groups = (strips_.count() + longest - 1) / longest;
    const int64_t v_plane = tiles * k_ + kGap, m_plane = tiles * n_ + kGap;
    Scratch scratch;
    const int64_t v = scratch.Add(kPoints * v_plane), m = scratch.Add(kPoints * m_plane);
    const int64_t stage =
        scratch.Add(std::max(kPatch * PatchRow(), kTile * winograd::TilePixels(strips_) * n_));
    scratch.Allocate(kernels_, ParallelChunks(groups, 1));
    ParallelForChunks(groups, 1, [&](int chunk, int64_t begin, int64_t end) {
      for (int64_t group = begin; group < end; ++group) {
        const int64_t first = group * longest, count = std::min(longest, strips_.count() - first);
        for (int64_t s = 0; s < count; ++s) {
          LoadStrip(first + s, scratch.At(chunk, stage),
                    scratch.At(chunk, v) + s * strips_.wide * k_, v_plane);
        }
        Multiply(count * strips_.wide, scratch.At(chunk, v), v_plane, packed.data<float>(), plane,
                 n_, scratch.At(chunk, m), m_plane);
        for (int64_t s = 0; s < count; ++s) {
          StoreStrip(first + s, {0, n_}, scratch.At(chunk, m) + s * strips_.wide * n_, m_plane,
                     scratch.At(chunk, stage));
        }
      }
    });
  }

  // All tiles are transformed first, or a long group of them. Then each thread takes panels of the
  // weights of its own, which need not come from memory again: for late layers, whose weights are
  // larger than their images.
  void RunByPanels() {
    const int64_t panels = RightPanels(n_), widest = std::min<int64_t>(kBlockColumns, n_);
    const int64_t longest = std::min(StripsOf(kSharedTiles), strips_.count());
    const int64_t tiles = longest * strips_.wide;
    const int64_t v_plane = tiles * k_ + kGap, m_plane = tiles * widest + kGap;
    const int64_t plane = k_ * widest + kGap;
    const Tensor v = kernels_.Empty({kPoints * v_plane}, DType::kF32, MemoryClass::kWorkspace);
    Scratch load, multiply;
    const int64_t patches = load.Add(kPatch * PatchRow());
    const int64_t u = multiply.Add(kPoints * plane), m = multiply.Add(kPoints * m_plane);
    const int64_t stage = multiply.Add(kTile * winograd::TilePixels(strips_) * widest);
    load.Allocate(kernels_, ParallelChunks(longest, 1));
    multiply.Allocate(kernels_, ParallelChunks(panels, 1));
    for (int64_t first = 0; first < strips_.count(); first += longest) {
      const int64_t count = std::min(longest, strips_.count() - first);
      ParallelForChunks(count, 1, [&](int chunk, int64_t begin, int64_t end) {
        for (int64_t s = begin; s < end; ++s) {
          LoadStrip(first + s, load.At(chunk, patches), v.data<float>() + s * strips_.wide * k_,
                    v_plane);
        }
      });
      ParallelForChunks(panels, 1, [&](int chunk, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const PanelRange panel = PanelOf(n_, i);
          for (int64_t row = 0; row < k_; row += kLanes) {
            weights_.TransformRows(row, panel, multiply.At(chunk, u), plane);
          }
          Multiply(count * strips_.wide, v.data<float>(), v_plane, multiply.At(chunk, u), plane,
                   panel.width, multiply.At(chunk, m), m_plane);
          for (int64_t s = 0; s < count; ++s) {
            StoreStrip(first + s, panel, multiply.At(chunk, m) + s * strips_.wide * panel.width,
                       m_plane, multiply.At(chunk, stage));
          }
        }
      });
    }
  }

  // v[points][wide, k] = the transformed tiles of a strip.
  void LoadStrip(int64_t strip, float* stage, float* v, int64_t v_plane) const {
    winograd::LoadStrip(x_, strips_, strip, 1, kPatch, winograd::PatchPixels(strips_), 0, k_,
                        stage);
    for (int64_t tile = 0; tile < strips_.wide; ++tile) {
      for (int64_t c = 0; c < k_; c += kLanes) {
        winograd::Transform2d<winograd::InputTransform>(stage + tile * kTile * k_ + c, PatchRow(),
                                                        k_, v + tile * k_ + c, v_plane);
      }
    }
  }

  // m[points][tiles, n] = v[points][tiles, k] u[points][k, n]
  void Multiply(int64_t tiles, const float* v, int64_t v_plane, const float* u, int64_t u_plane,
                int64_t n, float* m, int64_t m_plane) const {
    for (int point = 0; point < kPoints; ++point) {
      cpu::Multiply({.m = tiles,
                     .n = n,
                     .k = k_,
                     .a = v + point * v_plane,
                     .a_stride = k_,
                     .packed_b = u + point * u_plane,
                     .c = m + point * m_plane,
                     .c_stride = n},
                    kernels_.instructions());
    }
  }

  // Channels `range` of a strip of y, from its products m[points][wide, range.width].
  void StoreStrip(int64_t strip, const PanelRange& range, const float* m, int64_t m_plane,
                  float* stage) const {
    const int64_t n = range.width, row = winograd::TilePixels(strips_) * n;
    const float* bias = bias_.defined() ? bias_.data<float>() + range.first : nullptr;
    for (int64_t tile = 0; tile < strips_.wide; ++tile) {
      for (int64_t c = 0; c < n; c += kLanes) {
        winograd::OutputTile(m + tile * n + c, m_plane, bias == nullptr ? nullptr : bias + c,
                             stage + tile * kTile * n + c, row, n);
      }
    }
    winograd::StoreStrip(stage, strips_, strip, range.first, n, y_);
  }

  CpuKernels& kernels_;
  const Tensor& x_;
  const Weights& weights_;
  const Tensor bias_;
  const Tensor& y_;
  Strips strips_;
  int64_t k_, n_;
};

}  // namespace

bool WinogradPays(const Window& window, int64_t in, int64_t out) {
  return window.kernel == 3 && window.stride == 1 && window.padding == 1 && in % kLanes == 0 &&
         out % kLanes == 0 && in >= 64 && out >= 64;
}

void WinogradForward(CpuKernels& kernels, const Tensor& x, const Tensor& w, const Tensor& bias,
                     const Tensor& y) {
  const Weights weights(kernels, w, /*forward=*/true);
  Convolution(kernels, x, weights, bias, y).Run();
}

void WinogradBackwardInput(CpuKernels& kernels, const Tensor& dy, const Tensor& w,
                           const Tensor& dx) {
  const Weights weights(kernels, w, /*forward=*/false);
  Convolution(kernels, dy, weights, Tensor(), dx).Run();
}

}  // namespace lockstep::cpu
