#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "core/data/image_dataset.h"
#include "core/data/shape_images.h"

namespace lockstep {

// A built-in data set that needs no download: 32x32 RGB images of one shape in ten classes
// (ShapeKind), inputs [batch, 32, 32, 3].
class Shapes final : public ImageDataset {
 public:
  // InvalidArgument as ShapeImages::Create.
  static absl::StatusOr<std::shared_ptr<const Shapes>> Create(const ShapesOptions& options);

  std::string Describe() const override;
  Shape input_shape() const override { return {kShapeSide, kShapeSide, ShapeImages::kChannels}; }
  int64_t classes() const override { return kShapeKinds; }
  int64_t size(Split split) const override { return images_.size(split); }

  const ShapeImages& images() const { return images_; }

 protected:
  void FillImage(Split split, const SampleKey& key, absl::Span<float> image,
                 absl::Span<int32_t> targets) const override;

 private:
  explicit Shapes(ShapeImages images) : images_(std::move(images)) {}

  ShapeImages images_;
};

}  // namespace lockstep
