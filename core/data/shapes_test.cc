#include "core/data/shapes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/data/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const Shapes> Make(const ShapesOptions& options = {}) {
  auto shapes = Shapes::Create(options);
  EXPECT_TRUE(shapes.ok()) << shapes.status();
  return *shapes;
}

std::vector<float> Image(const Shapes& shapes, Split split, int64_t index) {
  return FillSamples<float>(shapes, split, {{.index = index}}).inputs;
}

TEST(Shapes, HasTheStatedSizes) {
  const auto shapes = Make();
  EXPECT_EQ(shapes->size(Split::kTrain), 10000);
  EXPECT_EQ(shapes->size(Split::kValidation), 1000);
  EXPECT_EQ(shapes->classes(), 10);
  EXPECT_EQ(shapes->input_shape(), Shape({32, 32, 3}));
  EXPECT_EQ(Make({.train_samples = 7})->size(Split::kTrain), 7);
}

TEST(Shapes, ClassesTakeTurns) {
  const auto shapes = Make();
  std::vector<SampleKey> keys;
  for (int64_t index = 0; index < 100; ++index) keys.push_back({.index = index});
  const auto filled = FillSamples<float>(*shapes, Split::kValidation, keys);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(filled.targets[i], i % 10);
}

TEST(Shapes, AnImageDependsOnItsIndexAlone) {
  const auto shapes = Make();
  const auto together = FillSamples<float>(
      *shapes, Split::kTrain, {{.index = 3}, {.index = 77, .augmentation = 5}, {.index = 9999}});
  const size_t elements = 32 * 32 * 3;
  for (const auto& [place, index] : {std::pair<size_t, int64_t>{0, 3}, {1, 77}, {2, 9999}}) {
    const std::vector<float> alone = Image(*Make(), Split::kTrain, index);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.inputs.begin() + place * elements));
  }
}

TEST(Shapes, SplitsAndSeedsShareNoImage) {
  const auto shapes = Make();
  const auto other = Make({.seed = 1});
  std::set<std::vector<float>> images;
  for (int64_t index = 0; index < 100; ++index) {
    images.insert(Image(*shapes, Split::kTrain, index));
    images.insert(Image(*shapes, Split::kValidation, index));
    images.insert(Image(*other, Split::kTrain, index));
  }
  EXPECT_EQ(images.size(), 300u);
}

// Without noise each element is the mix of the two colours by the mask's coverage.
TEST(Shapes, PaintsTheSceneItNames) {
  const auto shapes = Make({.noise = 0});
  for (int64_t index = 0; index < 20; ++index) {
    const ShapeScene scene = shapes->images().Scene(Split::kTrain, index);
    std::array<float, kShapePixels> coverage;
    DrawCoverage(scene, absl::MakeSpan(coverage));
    const std::vector<float> image = Image(*shapes, Split::kTrain, index);
    for (int64_t i = 0; i < kShapePixels * 3; ++i) {
      const double share = coverage[i / 3];
      const double value = scene.foreground[i % 3] * share + scene.background[i % 3] * (1 - share);
      ASSERT_NEAR(image[i], (value - 0.5) / 0.25, 1e-5) << index << " " << i;
    }
  }
}

TEST(Shapes, NoiseIsUniformAroundTheScene) {
  const auto clean = Make({.noise = 0});
  const auto noisy = Make({.noise = 0.05f});
  double sum = 0;
  double squares = 0;
  int64_t count = 0;
  for (int64_t index = 0; index < 20; ++index) {
    const std::vector<float> a = Image(*clean, Split::kTrain, index);
    const std::vector<float> b = Image(*noisy, Split::kTrain, index);
    for (size_t i = 0; i < a.size(); ++i) {
      const double difference = (b[i] - a[i]) * 0.25;
      ASSERT_LE(std::abs(difference), 0.05 + 1e-6);
      // Values near the ends of [0, 1] are clamped.
      if (a[i] < -1.75 || a[i] > 1.75) continue;
      sum += difference;
      squares += difference * difference;
      ++count;
    }
  }
  const double n = static_cast<double>(count);
  const double deviation = 0.05 / std::sqrt(3.0);  // of a uniform number
  EXPECT_NEAR(sum / n, 0, 5 * deviation / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(squares / n), deviation, 0.02 * deviation);
}

TEST(Shapes, InvertedColoursMirrorEachValue) {
  const auto shapes = Make();
  const auto inverted = Make({.invert_colours = true});
  const auto a = FillSamples<float>(*shapes, Split::kValidation, {{.index = 12}, {.index = 5}});
  const auto b = FillSamples<float>(*inverted, Split::kValidation, {{.index = 12}, {.index = 5}});
  EXPECT_EQ(a.targets, b.targets);
  ASSERT_EQ(a.inputs.size(), b.inputs.size());
  for (size_t i = 0; i < a.inputs.size(); ++i) ASSERT_FLOAT_EQ(a.inputs[i], -b.inputs[i]);
  EXPECT_THAT(inverted->Describe(), HasSubstr("inverted"));
}

TEST(Shapes, RefusesEmptySplitsAndSillyNoise) {
  EXPECT_EQ(Shapes::Create({.train_samples = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Shapes::Create({.validation_samples = -1}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Shapes::Create({.noise = -0.1f}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Shapes::Create({.noise = std::nanf("")}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep
