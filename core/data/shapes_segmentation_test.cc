#include "core/data/shapes_segmentation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/data/shapes.h"
#include "core/data/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

std::shared_ptr<const ShapesSegmentation> Make(const ShapesOptions& options = {}) {
  auto dataset = ShapesSegmentation::Create(options);
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  return *dataset;
}

std::vector<SampleKey> Keys(int64_t count) {
  std::vector<SampleKey> keys;
  for (int64_t index = 0; index < count; ++index) keys.push_back({.index = index});
  return keys;
}

TEST(ShapesSegmentation, NamesEachPixel) {
  const auto dataset = Make();
  EXPECT_EQ(dataset->task(), Task::kSegmentation);
  EXPECT_EQ(dataset->input_shape(), Shape({32, 32, 3}));
  EXPECT_EQ(dataset->target_shape(), Shape({32, 32}));
  EXPECT_EQ(dataset->classes(), 11);
  EXPECT_EQ(dataset->size(Split::kTrain), 10000);
  EXPECT_EQ(dataset->size(Split::kValidation), 1000);
}

TEST(ShapesSegmentation, TheImagesAreThoseOfShapes) {
  const ShapesOptions options = {.seed = 3, .invert_colours = true, .noise = 0.2f};
  const auto shapes = Shapes::Create(options);
  ASSERT_TRUE(shapes.ok());
  for (const Split split : {Split::kTrain, Split::kValidation}) {
    const auto named = FillSamples<float>(**shapes, split, Keys(30));
    const auto segmented = FillSamples<float>(*Make(options), split, Keys(30));
    EXPECT_EQ(segmented.inputs, named.inputs);
    // A pixel is background or of the image's class.
    for (int64_t i = 0; i < 30 * kShapePixels; ++i) {
      const int32_t target = segmented.targets[i];
      ASSERT_TRUE(target == 0 || target == 1 + named.targets[i / kShapePixels]) << target;
    }
  }
}

// From the image alone, which has no noise here: its corners are background, its pixel that is
// farthest from them in colour is all shape, and a pixel belongs to what it has more of.
TEST(ShapesSegmentation, AMaskIsWhatTheImageShows) {
  const auto dataset = Make({.noise = 0});
  constexpr int64_t kImages = 50;
  const auto filled = FillSamples<float>(*dataset, Split::kTrain, Keys(kImages));
  for (int64_t image = 0; image < kImages; ++image) {
    const float* colours = &filled.inputs[image * kShapePixels * 3];
    // How far a pixel's colour is from the background's.
    const auto distance = [colours](int64_t pixel) {
      double squares = 0;
      for (int64_t c = 0; c < 3; ++c) squares += std::pow(colours[pixel * 3 + c] - colours[c], 2);
      return std::sqrt(squares);
    };
    double farthest = 0;
    for (int64_t pixel = 0; pixel < kShapePixels; ++pixel) {
      farthest = std::max(farthest, distance(pixel));
    }
    int64_t inside = 0;
    for (int64_t pixel = 0; pixel < kShapePixels; ++pixel) {
      const double share = distance(pixel) / farthest;
      if (std::abs(share - 0.5) < 1e-4) continue;  // a rounding error decides
      const bool is_shape = filled.targets[image * kShapePixels + pixel] != 0;
      ASSERT_EQ(is_shape, share > 0.5) << image << " pixel " << pixel << " share " << share;
      inside += is_shape;
    }
    // The thinnest shape, a bar of radius 7.5, covers some 48 pixels, the largest disc 491.
    EXPECT_GT(inside, 40) << image;
    EXPECT_LT(inside, 500) << image;
  }
}

TEST(ShapesSegmentation, NoiseAndColoursDoNotMoveTheMask) {
  const auto targets = [](const ShapesOptions& options) {
    return FillSamples<float>(*Make(options), Split::kValidation, Keys(20)).targets;
  };
  const auto expected = targets({.noise = 0});
  EXPECT_EQ(targets({.noise = 0.5f}), expected);
  EXPECT_EQ(targets({.invert_colours = true}), expected);
  EXPECT_NE(targets({.seed = 1}), expected);
}

TEST(ShapesSegmentation, ASampleDependsOnItsIndexAlone) {
  const auto together = FillSamples<float>(
      *Make(), Split::kTrain, {{.index = 3}, {.index = 77, .augmentation = 5}, {.index = 9999}});
  for (const auto& [place, index] : {std::pair<int64_t, int64_t>{0, 3}, {1, 77}, {2, 9999}}) {
    const auto alone = FillSamples<float>(*Make(), Split::kTrain, {{.index = index}});
    EXPECT_TRUE(std::equal(alone.inputs.begin(), alone.inputs.end(),
                           together.inputs.begin() + place * kShapePixels * 3));
    EXPECT_TRUE(std::equal(alone.targets.begin(), alone.targets.end(),
                           together.targets.begin() + place * kShapePixels));
  }
}

TEST(ShapesSegmentation, SplitsShareNoMask) {
  const auto train = FillSamples<float>(*Make(), Split::kTrain, Keys(20));
  const auto validation = FillSamples<float>(*Make(), Split::kValidation, Keys(20));
  for (int64_t i = 0; i < 20; ++i) {
    const auto begin = train.targets.begin() + i * kShapePixels;
    EXPECT_FALSE(
        std::equal(begin, begin + kShapePixels, validation.targets.begin() + i * kShapePixels))
        << i;
  }
}

TEST(ShapesSegmentation, PaddingCountsForNothing) {
  const auto filled =
      FillSamples<float>(*Make(), Split::kValidation, {{.index = kNoSample}, {.index = 4}});
  const std::vector<int32_t> padding(filled.targets.begin(), filled.targets.begin() + kShapePixels);
  EXPECT_THAT(padding, Each(kIgnoredTarget));
  const auto alone = FillSamples<float>(*Make(), Split::kValidation, {{.index = 4}});
  EXPECT_TRUE(std::equal(alone.targets.begin(), alone.targets.end(),
                         filled.targets.begin() + kShapePixels));
}

TEST(ShapesSegmentation, SaysWhatItIsAndRefusesNonsense) {
  EXPECT_THAT(Make()->Describe(), HasSubstr("every pixel"));
  EXPECT_EQ(ShapesSegmentation::Create({.train_samples = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep
