#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "core/data/dataset.h"

namespace lockstep {

// A data set of pictures with one class each, filled picture by picture.
class ImageDataset : public Dataset {
 public:
  Task task() const final { return Task::kClassification; }
  Shape target_shape() const final { return Shape(); }
  DType input_dtype() const final { return DType::kF32; }
  absl::Status Fill(Split split, absl::Span<const SampleKey> keys, const Batch& batch) const final;

 protected:
  // Writes all elements of one normalised picture, [height, width, channels]; returns its class.
  virtual int32_t FillImage(Split split, const SampleKey& key, absl::Span<float> image) const = 0;
};

}  // namespace lockstep
