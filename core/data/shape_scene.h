// Images of one geometric shape, made from random numbers and drawn by signed distances.

#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "absl/types/span.h"
#include "core/base/philox.h"

namespace lockstep {

// Ten kinds that stay apart at any rotation and size.
enum class ShapeKind : int32_t {
  kDisc,
  kSquare,
  kTriangle,
  kCross,
  kRing,
  kStar,
  kHalfDisc,
  kBar,
  kCrescent,
  kCorner,
};
inline constexpr int64_t kShapeKinds = 10;

// "disc", "square", ...
std::string_view Name(ShapeKind kind);

// Width and height of the images.
inline constexpr int64_t kShapeSide = 32;
inline constexpr int64_t kShapePixels = kShapeSide * kShapeSide;

// What is on an image. Lengths are in pixels; pixel (row, column) has its middle at
// (column + 0.5, row + 0.5). Colours are RGB on [0, 1].
struct ShapeScene {
  ShapeKind kind = ShapeKind::kDisc;
  float center_x = 16;
  float center_y = 16;
  float radius = 10;  // of the circle around the shape
  float angle = 0;    // in radians
  std::array<float, 3> background{};
  std::array<float, 3> foreground{};
};

// The scene of image `index`: kinds take turns (index % 10), everything else is drawn. The shape
// lies within the image, its radius is between 7.5 and 12.5 pixels. Each channel of the
// background is in [0, 0.4] and of the foreground in [0.5, 1]: bright on dark, so that
// inverted colours are another distribution, which a trained model has not seen. Uses the blocks 0
// to 2 of `random` at this index.
ShapeScene RandomShapeScene(const Philox& random, int64_t index);

// How much of each pixel, [height, width], the shape covers: 0 outside, 1 inside, in between along
// its edge (anti-aliasing: half a pixel to both sides of the outline the coverage goes from 1 to 0
// with the distance). At least 0.5 makes a mask for segmentation. A few microseconds. Requires
// kShapePixels elements.
void DrawCoverage(const ShapeScene& scene, absl::Span<float> coverage);

}  // namespace lockstep
