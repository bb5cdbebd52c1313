#include "core/data/shapes_segmentation.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace lockstep {

absl::StatusOr<std::shared_ptr<const ShapesSegmentation>> ShapesSegmentation::Create(
    const ShapesOptions& options) {
  LS_ASSIGN_OR_RETURN(ShapeImages images, ShapeImages::Create(options));
  return std::shared_ptr<const ShapesSegmentation>(new ShapesSegmentation(std::move(images)));
}

std::string ShapesSegmentation::Describe() const {
  return absl::StrCat("shapes, every pixel (built in): ", images_.Describe());
}

void ShapesSegmentation::FillImage(Split split, const SampleKey& key, absl::Span<float> image,
                                   absl::Span<int32_t> targets) const {
  std::array<float, kShapePixels> coverage;
  const ShapeScene scene = images_.Paint(split, key.index, image, absl::MakeSpan(coverage));
  const int32_t kind = kBackground + 1 + static_cast<int32_t>(scene.kind);
  for (int64_t pixel = 0; pixel < kShapePixels; ++pixel) {
    targets[pixel] = coverage[pixel] >= 0.5f ? kind : kBackground;
  }
}

}  // namespace lockstep
