#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "core/data/image_dataset.h"
#include "core/data/shape_images.h"

namespace lockstep {

// The images of Shapes, of which every pixel is to be named: inputs [batch, 32, 32, 3], targets
// [batch, 32, 32], 0 for the background and 1 + kind (ShapeKind) where the shape covers at least
// half of the pixel.
class ShapesSegmentation final : public ImageDataset {
 public:
  static constexpr int32_t kBackground = 0;

  // InvalidArgument as ShapeImages::Create.
  static absl::StatusOr<std::shared_ptr<const ShapesSegmentation>> Create(
      const ShapesOptions& options);

  std::string Describe() const override;
  Task task() const override { return Task::kSegmentation; }
  Shape input_shape() const override { return {kShapeSide, kShapeSide, ShapeImages::kChannels}; }
  Shape target_shape() const override { return {kShapeSide, kShapeSide}; }
  int64_t classes() const override { return 1 + kShapeKinds; }
  int64_t size(Split split) const override { return images_.size(split); }

 protected:
  void FillImage(Split split, const SampleKey& key, absl::Span<float> image,
                 absl::Span<int32_t> targets) const override;

 private:
  explicit ShapesSegmentation(ShapeImages images) : images_(std::move(images)) {}

  ShapeImages images_;
};

}  // namespace lockstep
