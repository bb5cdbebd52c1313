#include "core/data/shapes.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace lockstep {

absl::StatusOr<std::shared_ptr<const Shapes>> Shapes::Create(const ShapesOptions& options) {
  LS_ASSIGN_OR_RETURN(ShapeImages images, ShapeImages::Create(options));
  return std::shared_ptr<const Shapes>(new Shapes(std::move(images)));
}

std::string Shapes::Describe() const {
  return absl::StrCat("shapes (built in): ", images_.Describe());
}

void Shapes::FillImage(Split split, const SampleKey& key, absl::Span<float> image,
                       absl::Span<int32_t> targets) const {
  std::array<float, kShapePixels> coverage;
  const ShapeScene scene = images_.Paint(split, key.index, image, absl::MakeSpan(coverage));
  targets[0] = static_cast<int32_t>(scene.kind);
}

}  // namespace lockstep
