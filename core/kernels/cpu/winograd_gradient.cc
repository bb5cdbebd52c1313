// The gradient of the weights of Winograd's convolutions.

#include <algorithm>

#include "core/kernels/cpu/row_tiles.h"  // Scratch
#include "core/kernels/cpu/tile_gemm.h"
#include "core/kernels/cpu/tile_kernel.h"  // kBlockRows
#include "core/kernels/cpu/tree_leaves.h"
#include "core/kernels/cpu/winograd.h"
#include "core/kernels/cpu/winograd_strips.h"
#include "core/kernels/cpu/winograd_transforms.h"

namespace lockstep::cpu {
namespace {

using winograd::kGap;
using winograd::kLanes;
using winograd::kPatch;
using winograd::kPoints;
using winograd::kTile;
using winograd::Strips;

// Blocks of in and out channels: the 36 products of one, 64 x 64 each, stay in the second-level
// cache while all tiles of a leaf are added to them.
constexpr int64_t kBlock = 64;
// Elements of a block's gradient, [out, 9, in].
constexpr int64_t kBlockGradient = 9 * kBlock * kBlock;

// Tiles that are transformed before they are multiplied.
constexpr int64_t kTiles = 16;

// A leaf of the sum is a fixed number of samples: about as many tiles.
constexpr int64_t kLeafTiles = 128;

constexpr int64_t CeilDivide(int64_t n, int64_t by) { return (n + by - 1) / by; }

// Channels first .. first + count of x or dy.
struct Channels {
  Channels(int64_t all, int64_t block)
      : first(block * kBlock), count(std::min(kBlock, all - first)) {}
  int64_t first, count;
};

// One block's gradient over one leaf.
class BlockGradient {
 public:
  struct Memory {
    float *products, *x, *dy, *stage;
  };
  static Scratch MakeScratch(const Strips& strips, int64_t places[4]) {
    Scratch scratch;
    const int64_t tiles = StripsAtOnce(strips) * strips.wide;
    places[0] = scratch.Add(kPoints * (kBlock * kBlock + kGap));
    places[1] = scratch.Add(kPoints * (tiles * kBlock + kGap));
    places[2] = scratch.Add(kPoints * (tiles * kBlock + kGap));
    places[3] = scratch.Add(kPatch * winograd::PatchPixels(strips) * kBlock);
    return scratch;
  }
  static int64_t StripsAtOnce(const Strips& strips) {
    return std::max<int64_t>(1, kTiles / strips.wide);
  }

  BlockGradient(const Tensor& x, const Tensor& dy, const Channels& in, const Channels& out,
                const Memory& memory, InstructionSet instructions)
      : x_(x),
        dy_(dy),
        strips_(x),
        in_(in),
        out_(out),
        memory_(memory),
        instructions_(instructions) {
    plane_ = StripsAtOnce(strips_) * strips_.wide * kBlock + kGap;
  }

  // Writes [out.count, 9, in.count], the sum over strips [first, end).
  void Run(int64_t first, int64_t end, float* gradient) {
    for (int64_t at = first; at < end; at += StripsAtOnce(strips_)) {
      const int64_t strips = std::min(StripsAtOnce(strips_), end - at);
      TransformInput(at, strips);
      TransformGradient(at, strips);
      Multiply(strips * strips_.wide, at > first);
    }
    for (int64_t o = 0; o < out_.count; ++o) {
      for (int64_t c = 0; c < in_.count; c += kLanes) {
        winograd::Transform2d<winograd::WeightGradientTransform>(
            memory_.products + o * in_.count + c, kPatch * ProductPlane(), ProductPlane(),
            gradient + o * 9 * in_.count + c, in_.count);
      }
    }
  }

 private:
  static constexpr int64_t ProductPlane() { return kBlock * kBlock + kGap; }

  // x's tiles as right operands [tiles, in].
  void TransformInput(int64_t at, int64_t strips) {
    const int64_t tiles = strips * strips_.wide, row = winograd::PatchPixels(strips_) * in_.count;
    for (int64_t s = 0; s < strips; ++s) {
      winograd::LoadStrip(x_, strips_, at + s, 1, kPatch, winograd::PatchPixels(strips_), in_.first,
                          in_.count, memory_.stage);
      for (int64_t panel = 0; panel < RightPanels(in_.count); ++panel) {
        const PanelRange range = PanelOf(in_.count, panel);
        for (int64_t tile = 0; tile < strips_.wide; ++tile) {
          float* to = memory_.x + range.first * tiles + (s * strips_.wide + tile) * range.width;
          const float* from = memory_.stage + tile * kTile * in_.count + range.first;
          for (int64_t c = 0; c < range.width; c += kLanes) {
            winograd::Transform2d<winograd::InputTransform>(from + c, row, in_.count, to + c,
                                                            plane_);
          }
        }
      }
    }
  }

  // dy's tiles as left operands [out, tiles], in panels of kBlockRows channels.
  void TransformGradient(int64_t at, int64_t strips) {
    const int64_t tiles = strips * strips_.wide, row = winograd::TilePixels(strips_) * out_.count;
    alignas(64) float points[kPoints * kLanes];
    for (int64_t s = 0; s < strips; ++s) {
      winograd::LoadStrip(dy_, strips_, at + s, 0, kTile, winograd::TilePixels(strips_), out_.first,
                          out_.count, memory_.stage);
      for (int64_t tile = 0; tile < strips_.wide; ++tile) {
        for (int64_t c = 0; c < out_.count; c += kLanes) {
          winograd::Transform2d<winograd::OutputGradientTransform>(
              memory_.stage + tile * kTile * out_.count + c, row, out_.count, points, kLanes);
          float* to = memory_.dy + c * tiles + (s * strips_.wide + tile) * kBlockRows;
          for (int point = 0; point < kPoints; ++point, to += plane_) {
            for (int64_t half = 0; half < kLanes; half += kBlockRows) {
              std::copy_n(points + point * kLanes + half, kBlockRows, to + half * tiles);
            }
          }
        }
      }
    }
  }

  void Multiply(int64_t tiles, bool add) {
    for (int point = 0; point < kPoints; ++point) {
      float* products = memory_.products + point * ProductPlane();
      const float* const held = products;
      cpu::Multiply({.m = out_.count,
                     .n = in_.count,
                     .k = tiles,
                     .a = memory_.dy + point * plane_,
                     .packed_b = memory_.x + point * plane_,
                     .c = products,
                     .c_stride = in_.count,
                     .addends = {&held, add ? size_t{1} : size_t{0}},
                     .addend_stride = in_.count},
                    instructions_);
    }
  }

  const Tensor &x_, &dy_;
  Strips strips_;
  Channels in_, out_;
  Memory memory_;
  InstructionSet instructions_;
  int64_t plane_;
};

}  // namespace

void WinogradBackwardWeight(CpuKernels& kernels, const Tensor& dy, const Tensor& x,
                            const Tensor& dw) {
  const Strips strips(x);
  const int64_t in = x.shape()[3], out = dy.shape()[3];
  const int64_t in_blocks = CeilDivide(in, kBlock), out_blocks = CeilDivide(out, kBlock);
  const int64_t leaf_samples = CeilDivide(kLeafTiles, strips.tiles_of_sample());
  TreeLeaves leaves(kernels.allocator(), in_blocks * out_blocks,
                    CeilDivide(strips.batch, leaf_samples), kBlockGradient);
  int64_t places[4];
  Scratch scratch = BlockGradient::MakeScratch(strips, places);
  scratch.Allocate(kernels, leaves.chunks());
  leaves.Sum(
      [&](int chunk, int64_t block, int64_t leaf, float* gradient) {
        BlockGradient sum(x, dy, Channels(in, block % in_blocks), Channels(out, block / in_blocks),
                          {scratch.At(chunk, places[0]), scratch.At(chunk, places[1]),
                           scratch.At(chunk, places[2]), scratch.At(chunk, places[3])},
                          kernels.instructions());
        const int64_t first = leaf * leaf_samples;
        const int64_t end = std::min(first + leaf_samples, strips.batch);
        sum.Run(first * strips.high, end * strips.high, gradient);
      },
      [&](int64_t block, const float* gradient) {
        const Channels ins(in, block % in_blocks), outs(out, block / in_blocks);
        float* to = dw.data<float>() + outs.first * 9 * in + ins.first;
        for (int64_t row = 0; row < outs.count * 9; ++row) {
          std::copy_n(gradient + row * ins.count, ins.count, to + row * in);
        }
      });
}

}  // namespace lockstep::cpu
