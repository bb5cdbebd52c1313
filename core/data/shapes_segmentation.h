#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "core/data/image_dataset.h"
#include "core/data/shape_pictures.h"

namespace lockstep {

// The pictures of Shapes, of which every pixel is to be named: inputs [batch, 32, 32, 3], targets
// [batch, 32, 32], 0 for the background and 1 + kind (ShapeKind) where the shape covers at least
// half of the pixel.
class ShapesSegmentation final : public ImageDataset {
 public:
  static constexpr int32_t kBackground = 0;

  // InvalidArgument as ShapePictures::Create.
  static absl::StatusOr<std::shared_ptr<const ShapesSegmentation>> Create(
      const ShapesOptions& options);

  std::string Describe() const override;
  Task task() const override { return Task::kSegmentation; }
  Shape input_shape() const override { return {kShapeSide, kShapeSide, ShapePictures::kChannels}; }
  Shape target_shape() const override { return {kShapeSide, kShapeSide}; }
  int64_t classes() const override { return 1 + kShapeKinds; }
  int64_t size(Split split) const override { return pictures_.size(split); }

 protected:
  void FillImage(Split split, const SampleKey& key, absl::Span<float> image,
                 absl::Span<int32_t> targets) const override;

 private:
  explicit ShapesSegmentation(ShapePictures pictures) : pictures_(std::move(pictures)) {}

  ShapePictures pictures_;
};

}  // namespace lockstep
