#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "core/data/dataset.h"

namespace lockstep {

// A data set of images, filled image by image. Each has one class, unless a data set says otherwise
// by task() and target_shape().
class ImageDataset : public Dataset {
 public:
  Task task() const override { return Task::kClassification; }
  Shape target_shape() const override { return Shape(); }
  DType input_dtype() const final { return DType::kF32; }
  absl::Status Fill(Split split, absl::Span<const SampleKey> keys, const Batch& batch) const final;

 protected:
  // Writes all elements of one normalised image, [height, width, channels], and its targets.
  virtual void FillImage(Split split, const SampleKey& key, absl::Span<float> image,
                         absl::Span<int32_t> targets) const = 0;
};

}  // namespace lockstep
