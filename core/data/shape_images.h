#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/base/philox.h"
#include "core/data/dataset.h"
#include "core/data/shape_scene.h"

namespace lockstep {

struct ShapesOptions {
  int64_t train_samples = 10000;
  int64_t validation_samples = 1000;
  uint64_t seed = 0;  // of the data set: another seed, other images

  // Each channel is replaced by 1 minus it: the same images, dark on bright.
  bool invert_colours = false;

  // Noise, uniform on [-noise, noise], is added to each channel of each pixel.
  float noise = 0.15f;
};

// The images that the built-in data sets of shapes have in common: 32x32 RGB, one shape each.
// Place, size, rotation and colours are drawn by Philox from the image's index; nothing is stored,
// an image is drawn when it is asked for, in about 10 us. The splits use different keys, so no
// image of one is in the other. Channels on [0, 1] are normalised to (value - 0.5) / 0.25.
class ShapeImages {
 public:
  static constexpr int64_t kChannels = 3;
  static constexpr int64_t kValues = kShapePixels * kChannels;

  // InvalidArgument where a split has no sample or the noise is not in [0, 1].
  static absl::StatusOr<ShapeImages> Create(const ShapesOptions& options);

  // For a data set's own: how many there are, from which seed.
  std::string Describe() const;
  int64_t size(Split split) const;

  // What is on an image. Requires index in [0, size(split)).
  ShapeScene Scene(Split split, int64_t index) const;

  // Paints that scene, which it returns: all kValues elements of the image, [height, width,
  // channels], and the coverage of its kShapePixels pixels without noise (DrawCoverage).
  ShapeScene Paint(Split split, int64_t index, absl::Span<float> image,
                   absl::Span<float> coverage) const;

 private:
  explicit ShapeImages(const ShapesOptions& options);
  const Philox& random(Split split) const { return split == Split::kTrain ? train_ : validation_; }

  ShapesOptions options_;
  Philox train_;
  Philox validation_;
};

}  // namespace lockstep
