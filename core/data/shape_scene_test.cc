#include "core/data/shape_scene.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

using Polygon = std::vector<std::pair<double, double>>;

// By counting how many edges a ray to the right crosses.
bool InsidePolygon(const Polygon& corners, double x, double y) {
  bool inside = false;
  for (size_t i = 0; i < corners.size(); ++i) {
    const auto [x0, y0] = corners[i];
    const auto [x1, y1] = corners[(i + 1) % corners.size()];
    if ((y0 > y) != (y1 > y) && x < x0 + (y - y0) / (y1 - y0) * (x1 - x0)) inside = !inside;
  }
  return inside;
}

// `count` corners on circles of the given radii in turn; the first one is straight up.
Polygon Around(int count, double even_radius, double odd_radius) {
  Polygon corners;
  for (int i = 0; i < count; ++i) {
    const double angle = 2 * std::numbers::pi * i / count;
    const double radius = i % 2 == 0 ? even_radius : odd_radius;
    corners.push_back({radius * std::sin(angle), -radius * std::cos(angle)});
  }
  return corners;
}

// The shapes in the unit circle by their outlines: another way than signed distances.
bool Inside(ShapeKind kind, double x, double y) {
  const double r = std::hypot(x, y);
  const double h = std::sqrt(0.5);
  const double arm = std::sqrt(1 - 0.3 * 0.3);
  const double bar = std::sqrt(1 - 0.22 * 0.22);
  // A pentagram's inner corners lie on a circle of cos 72 / cos 36 degrees.
  const double inner = std::cos(2 * std::numbers::pi / 5) / std::cos(std::numbers::pi / 5);
  switch (kind) {
    case ShapeKind::kDisc:
      return r <= 1;
    case ShapeKind::kSquare:
      return InsidePolygon({{-h, -h}, {h, -h}, {h, h}, {-h, h}}, x, y);
    case ShapeKind::kTriangle:
      return InsidePolygon(Around(3, 1, 1), x, y);
    case ShapeKind::kCross:
      return InsidePolygon({{-0.3, -arm},
                            {0.3, -arm},
                            {0.3, -0.3},
                            {arm, -0.3},
                            {arm, 0.3},
                            {0.3, 0.3},
                            {0.3, arm},
                            {-0.3, arm},
                            {-0.3, 0.3},
                            {-arm, 0.3},
                            {-arm, -0.3},
                            {-0.3, -0.3}},
                           x, y);
    case ShapeKind::kRing:
      return r <= 1 && r >= 0.6;
    case ShapeKind::kStar:
      return InsidePolygon(Around(10, 1, inner), x, -y);  // one tip points down
    case ShapeKind::kHalfDisc:
      return r <= 1 && y >= 0;
    case ShapeKind::kBar:
      return InsidePolygon({{-bar, -0.22}, {bar, -0.22}, {bar, 0.22}, {-bar, 0.22}}, x, y);
    case ShapeKind::kCrescent:
      return r <= 1 && std::hypot(x - 0.5, y) >= 0.9;
    case ShapeKind::kCorner:
      return InsidePolygon(
          {{-h, -h}, {-h + 0.46, -h}, {-h + 0.46, h - 0.46}, {h, h - 0.46}, {h, h}, {-h, h}}, x, y);
  }
  return false;
}

std::array<float, kShapePixels> Coverage(const ShapeScene& scene) {
  std::array<float, kShapePixels> coverage;
  DrawCoverage(scene, absl::MakeSpan(coverage));
  return coverage;
}

class ShapeKindTest : public testing::TestWithParam<int> {
 protected:
  ShapeKind kind() const { return static_cast<ShapeKind>(GetParam()); }
};

// Against the share of 8 x 8 points of each pixel that lie inside.
TEST_P(ShapeKindTest, CoverageIsTheShareOfThePixel) {
  constexpr int kPoints = 8;
  const Philox random(99);
  for (int64_t round = 0; round < 4; ++round) {
    const ShapeScene scene = RandomShapeScene(random, 10 * round + GetParam());
    ASSERT_EQ(scene.kind, kind());
    const auto coverage = Coverage(scene);
    const double cosine = std::cos(static_cast<double>(scene.angle));
    const double sine = std::sin(static_cast<double>(scene.angle));
    double total = 0;
    double expected_total = 0;
    double worst = 0;
    double error = 0;
    for (int64_t pixel = 0; pixel < kShapePixels; ++pixel) {
      const int64_t row = pixel / kShapeSide;
      const int64_t column = pixel % kShapeSide;
      int inside = 0;
      for (int i = 0; i < kPoints * kPoints; ++i) {
        const int down = i / kPoints;
        const int right = i % kPoints;
        const double dx = static_cast<double>(column) + (right + 0.5) / kPoints - scene.center_x;
        const double dy = static_cast<double>(row) + (down + 0.5) / kPoints - scene.center_y;
        // Rotated back by the angle and scaled to the unit circle.
        inside += Inside(kind(), (dx * cosine + dy * sine) / scene.radius,
                         (dy * cosine - dx * sine) / scene.radius);
      }
      const double expected = inside / static_cast<double>(kPoints * kPoints);
      total += coverage[pixel];
      expected_total += expected;
      worst = std::max(worst, std::abs(coverage[pixel] - expected));
      error += std::abs(coverage[pixel] - expected);
    }
    // Sharp corners are where a distance says the least about the area.
    EXPECT_LT(worst, 0.45) << Name(kind()) << " " << round;
    EXPECT_LT(error / expected_total, 0.05) << Name(kind()) << " " << round;
    EXPECT_NEAR(total, expected_total, 0.03 * expected_total) << Name(kind()) << " " << round;
  }
}

TEST_P(ShapeKindTest, LiesWithinTheImage) {
  const Philox random(5);
  for (int64_t round = 0; round < 50; ++round) {
    const ShapeScene scene = RandomShapeScene(random, 10 * round + GetParam());
    EXPECT_GE(scene.radius, 7.5f);
    EXPECT_LE(scene.radius, 12.5f);
    const auto coverage = Coverage(scene);
    float highest = 0;
    for (int64_t pixel = 0; pixel < kShapePixels; ++pixel) {
      highest = std::max(highest, coverage[pixel]);
      ASSERT_GE(coverage[pixel], 0);
      ASSERT_LE(coverage[pixel], 1);
      const int64_t row = pixel / kShapeSide;
      const int64_t column = pixel % kShapeSide;
      const double distance = std::hypot(static_cast<double>(column) + 0.5 - scene.center_x,
                                         static_cast<double>(row) + 0.5 - scene.center_y);
      if (distance > scene.radius + 0.75) {
        ASSERT_EQ(coverage[pixel], 0) << Name(kind());
      }
    }
    EXPECT_EQ(highest, 1) << Name(kind());
    EXPECT_LE(scene.center_x + scene.radius, 32);
    EXPECT_GE(scene.center_x - scene.radius, 0);
    EXPECT_LE(scene.center_y + scene.radius, 32);
    EXPECT_GE(scene.center_y - scene.radius, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ShapeKindTest, testing::Range(0, 10),
                         [](const testing::TestParamInfo<int>& kind) {
                           return std::string(Name(static_cast<ShapeKind>(kind.param)));
                         });

TEST(ShapeScene, ShapesAreBrighterThanTheirBackground) {
  const Philox random(5);
  for (int64_t index = 0; index < 200; ++index) {
    const ShapeScene scene = RandomShapeScene(random, index);
    for (int channel = 0; channel < 3; ++channel) {
      EXPECT_GE(scene.background[channel], 0.0f);
      EXPECT_LE(scene.background[channel], 0.4f);
      EXPECT_GE(scene.foreground[channel], 0.5f);
      EXPECT_LE(scene.foreground[channel], 1.0f);
    }
  }
}

TEST(ShapeScene, ScenesDiffer) {
  const Philox random(5);
  std::set<float> angles;
  for (int64_t index = 0; index < 1000; ++index) {
    angles.insert(RandomShapeScene(random, index).angle);
  }
  EXPECT_GT(angles.size(), 990u);
}

TEST(ShapeScene, NamesDiffer) {
  std::set<std::string_view> names;
  for (int kind = 0; kind < kShapeKinds; ++kind) names.insert(Name(static_cast<ShapeKind>(kind)));
  EXPECT_EQ(names.size(), 10u);
}

}  // namespace
}  // namespace lockstep
