#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/base/philox.h"
#include "core/data/image_dataset.h"
#include "core/data/shape_scene.h"

namespace lockstep {

struct ShapesOptions {
  int64_t train_samples = 10000;
  int64_t validation_samples = 1000;
  uint64_t seed = 0;  // of the data set: another seed, other pictures

  // Each channel is replaced by 1 minus it: the same pictures, dark on bright.
  bool invert_colours = false;

  // Noise, uniform on [-noise, noise], is added to each channel of each pixel.
  float noise = 0.15f;
};

// A built-in data set that needs no download: 32x32 RGB pictures of one shape in ten classes
// (ShapeKind), inputs [batch, 32, 32, 3]. Place, size, rotation and colours are drawn by Philox
// from the picture's index; nothing is stored, a row is drawn when it is asked for, in about 10 us.
// The splits use different keys, so no picture of one is in the other. Channels on [0, 1] are
// normalised to (value - 0.5) / 0.25.
class Shapes final : public ImageDataset {
 public:
  static constexpr int64_t kChannels = 3;

  // InvalidArgument where a split has no sample or the noise is not in [0, 1].
  static absl::StatusOr<std::shared_ptr<const Shapes>> Create(const ShapesOptions& options);

  std::string Describe() const override;
  Shape input_shape() const override { return {kShapeSide, kShapeSide, kChannels}; }
  int64_t classes() const override { return kShapeKinds; }
  int64_t size(Split split) const override;

  // What is on a picture; DrawCoverage gives its mask. Requires index in [0, size(split)).
  ShapeScene Scene(Split split, int64_t index) const;

 protected:
  int32_t FillImage(Split split, const SampleKey& key, absl::Span<float> image) const override;

 private:
  explicit Shapes(const ShapesOptions& options);
  const Philox& random(Split split) const { return split == Split::kTrain ? train_ : validation_; }

  ShapesOptions options_;
  Philox train_;
  Philox validation_;
};

}  // namespace lockstep
