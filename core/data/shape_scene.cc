#include "core/data/shape_scene.h"

#include <algorithm>  // std::clamp, std::max, std::min
#include <cmath>      // std::abs, std::sqrt
#include <numbers>    // pi

#include "core/base/elementary.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// Proportions of the shapes in a circle of radius 1. shape_scene_test.cc knows them too.
constexpr float kCrossArm = 0.3f;      // half the width of an arm
constexpr float kRingHole = 0.6f;      // radius
constexpr float kBarWidth = 0.22f;     // half of it
constexpr float kCrescentBite = 0.9f;  // radius of the disc that is cut off
constexpr float kCrescentShift = 0.5f;
constexpr float kCornerArm = 0.46f;  // width

// Signed distances from the outline, negative inside, of shapes within the unit circle; (x, y) has
// y downward. Intersections are max and unions min: exact at the outline, which is all that
// anti-aliasing looks at, and a bound elsewhere (Ricci, "A Constructive Geometry for Computer
// Graphics", 1973).

float Length(float x, float y) { return std::sqrt(x * x + y * y); }

// |x| <= width, |y| <= height.
float Box(float x, float y, float width, float height) {
  return std::max(std::abs(x) - width, std::abs(y) - height);
}

float Disc(float x, float y) { return Length(x, y) - 1; }

float Square(float x, float y) {
  constexpr float kHalf = std::numbers::sqrt2_v<float> / 2;
  return Box(x, y, kHalf, kHalf);
}

// Equilateral, one side at the bottom: three half-planes half a radius from the middle. The disc
// keeps the blur of the sharp corners within the circle, here and in the star.
float Triangle(float x, float y) {
  constexpr float kSlope = std::numbers::sqrt3_v<float> / 2;
  return std::max(std::max(kSlope * std::abs(x) - 0.5f * y, y) - 0.5f, Disc(x, y));
}

float Cross(float x, float y) {
  const float reach = std::sqrt(1 - kCrossArm * kCrossArm);
  return std::min(Box(x, y, reach, kCrossArm), Box(x, y, kCrossArm, reach));
}

float Ring(float x, float y) {
  const float distance = Length(x, y);
  return std::max(distance - 1, kRingHole - distance);
}

// A pentagram: what lies on the inner side of at least four of its five lines. So the second
// largest of the five distances decides.
float Star(float x, float y) {
  // cos 72, sin 72, cos 144, sin 144 (degrees): the normals of the lines are 72 degrees apart.
  constexpr float kC1 = 0.30901699f, kS1 = 0.95105652f, kC2 = -0.80901699f, kS2 = 0.58778525f;
  constexpr float kInner = kC1;  // the lines' distance from the middle
  const float distances[5] = {y, kC1 * y + kS1 * x, kC1 * y - kS1 * x, kC2 * y + kS2 * x,
                              kC2 * y - kS2 * x};
  float largest = distances[0];
  float second = -2;
  for (int i = 1; i < 5; ++i) {
    second = std::max(second, std::min(largest, distances[i]));
    largest = std::max(largest, distances[i]);
  }
  return std::max(second - kInner, Disc(x, y));
}

float HalfDisc(float x, float y) { return std::max(Disc(x, y), -y); }

float Bar(float x, float y) { return Box(x, y, std::sqrt(1 - kBarWidth * kBarWidth), kBarWidth); }

float Crescent(float x, float y) {
  return std::max(Disc(x, y), kCrescentBite - Length(x - kCrescentShift, y));
}

// Two arms along the lower and the left side of the square.
float Corner(float x, float y) {
  constexpr float kHalf = std::numbers::sqrt2_v<float> / 2;
  return std::max(Square(x, y), std::min(kHalf - kCornerArm - y, x + kHalf - kCornerArm));
}

// A loop of its own for each kind, so that the compiler vectorises it.
template <float (*kDistance)(float, float)>
void Draw(const ShapeScene& scene, float* coverage) {
  const SineAndCosine direction = SineAndCosineOfTurns(scene.angle / (2 * std::numbers::pi));
  const float cosine = static_cast<float>(direction.cosine) / scene.radius;
  const float sine = static_cast<float>(direction.sine) / scene.radius;
  for (int row = 0; row < kShapeSide; ++row) {
    const float dy = static_cast<float>(row) + 0.5f - scene.center_y;
    for (int column = 0; column < kShapeSide; ++column) {
      const float dx = static_cast<float>(column) + 0.5f - scene.center_x;
      const float distance =
          scene.radius * kDistance(cosine * dx + sine * dy, cosine * dy - sine * dx);
      coverage[row * kShapeSide + column] = std::clamp(0.5f - distance, 0.0f, 1.0f);
    }
  }
}

float Between(float lower, float upper, uint32_t bits) {
  return lower + (upper - lower) * (static_cast<float>(bits >> 8) * 0x1p-24f);
}

}  // namespace

std::string_view Name(ShapeKind kind) {
  constexpr std::array<std::string_view, kShapeKinds> kNames = {
      "disc", "square",    "triangle", "cross",    "ring",
      "star", "half_disc", "bar",      "crescent", "corner"};
  return kNames[static_cast<int32_t>(kind)];
}

ShapeScene RandomShapeScene(const Philox& random, int64_t index) {
  const uint64_t place = static_cast<uint64_t>(index);
  const std::array<uint32_t, 4> pose = random.Block(0, place);
  const std::array<uint32_t, 4> dark = random.Block(1, place);
  const std::array<uint32_t, 4> bright = random.Block(2, place);
  ShapeScene scene;
  scene.kind = static_cast<ShapeKind>(index % kShapeKinds);
  scene.radius = Between(7.5f, 12.5f, pose[0]);
  const float margin = scene.radius + 0.5f;  // the anti-aliased edge is inside as well
  scene.center_x = Between(margin, kShapeSide - margin, pose[1]);
  scene.center_y = Between(margin, kShapeSide - margin, pose[2]);
  scene.angle = Between(0, 2 * std::numbers::pi_v<float>, pose[3]);
  for (int channel = 0; channel < 3; ++channel) {
    scene.background[channel] = Between(0, 0.4f, dark[channel]);
    scene.foreground[channel] = Between(0.5f, 1, bright[channel]);
  }
  return scene;
}

void DrawCoverage(const ShapeScene& scene, absl::Span<float> coverage) {
  CHECK_EQ(static_cast<int64_t>(coverage.size()), kShapePixels);
  switch (scene.kind) {
    case ShapeKind::kDisc:
      return Draw<Disc>(scene, coverage.data());
    case ShapeKind::kSquare:
      return Draw<Square>(scene, coverage.data());
    case ShapeKind::kTriangle:
      return Draw<Triangle>(scene, coverage.data());
    case ShapeKind::kCross:
      return Draw<Cross>(scene, coverage.data());
    case ShapeKind::kRing:
      return Draw<Ring>(scene, coverage.data());
    case ShapeKind::kStar:
      return Draw<Star>(scene, coverage.data());
    case ShapeKind::kHalfDisc:
      return Draw<HalfDisc>(scene, coverage.data());
    case ShapeKind::kBar:
      return Draw<Bar>(scene, coverage.data());
    case ShapeKind::kCrescent:
      return Draw<Crescent>(scene, coverage.data());
    case ShapeKind::kCorner:
      return Draw<Corner>(scene, coverage.data());
  }
}

}  // namespace lockstep
