#include "core/data/shape_images.h"

#include <algorithm>  // std::clamp
#include <array>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// RandomShapeScene takes the first three blocks of an image's random numbers.
constexpr uint64_t kNoiseBegin = 3 * 4;

}  // namespace

absl::StatusOr<ShapeImages> ShapeImages::Create(const ShapesOptions& options) {
  if (options.train_samples < 1 || options.validation_samples < 1) {
    return InvalidArgument("shapes needs at least one image in each split, but is to have ",
                           options.train_samples, " for training and ", options.validation_samples,
                           " for validation");
  }
  if (!(options.noise >= 0 && options.noise <= 1)) {
    return InvalidArgument("the noise of shapes must be between 0 and 1, but is ", options.noise);
  }
  return ShapeImages(options);
}

ShapeImages::ShapeImages(const ShapesOptions& options)
    : options_(options),
      train_(PhiloxKey(options.seed, "shapes", "train")),
      validation_(PhiloxKey(options.seed, "shapes", "validation")) {}

std::string ShapeImages::Describe() const {
  return absl::StrCat(options_.train_samples, " training and ", options_.validation_samples,
                      " validation images, seed ", options_.seed,
                      options_.invert_colours ? ", colours inverted" : "");
}

int64_t ShapeImages::size(Split split) const {
  return split == Split::kTrain ? options_.train_samples : options_.validation_samples;
}

ShapeScene ShapeImages::Scene(Split split, int64_t index) const {
  return RandomShapeScene(random(split), index);
}

ShapeScene ShapeImages::Paint(Split split, int64_t index, absl::Span<float> image,
                              absl::Span<float> coverage) const {
  CHECK_EQ(static_cast<int64_t>(image.size()), kValues);
  const ShapeScene scene = Scene(split, index);
  DrawCoverage(scene, coverage);
  // A byte of noise for each value is fine enough: four come out of each random word.
  std::array<uint32_t, kValues / 4> noise;
  random(split).FillBits(noise, kNoiseBegin, static_cast<uint64_t>(index));

  // (value - 0.5) / 0.25, and for 1 - value the same with the other sign.
  const float sign = options_.invert_colours ? -4.0f : 4.0f;
  const float noise_scale = options_.noise / 127.5f;
  for (int64_t pixel = 0; pixel < kShapePixels; ++pixel) {
    for (int64_t channel = 0; channel < kChannels; ++channel) {
      const int64_t i = pixel * kChannels + channel;
      const float byte = static_cast<float>(noise[i / 4] >> (i % 4 * 8) & 0xFF);
      const float background = scene.background[channel];
      const float value = background + (scene.foreground[channel] - background) * coverage[pixel] +
                          (byte - 127.5f) * noise_scale;
      image[i] = sign * (std::clamp(value, 0.0f, 1.0f) - 0.5f);
    }
  }
  return scene;
}

}  // namespace lockstep
