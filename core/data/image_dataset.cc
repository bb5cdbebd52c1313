#include "core/data/image_dataset.h"

#include <algorithm>  // std::fill
#include <cstddef>

#include "glog/logging.h"

namespace lockstep {

absl::Status ImageDataset::Fill(Split split, absl::Span<const SampleKey> keys,
                                const Batch& batch) const {
  const int64_t samples = static_cast<int64_t>(keys.size());
  const int64_t pixels = input_shape().elements(), targets = target_shape().elements();
  const int64_t split_size = size(split);
  CHECK_EQ(batch.inputs.elements(), samples * pixels) << batch.inputs.ToString();
  CHECK_EQ(batch.targets.elements(), samples * targets) << batch.targets.ToString();
  float* image = batch.inputs.data<float>();
  int32_t* target = batch.targets.data<int32_t>();
  for (const SampleKey& key : keys) {
    const absl::Span<float> elements(image, static_cast<size_t>(pixels));
    const absl::Span<int32_t> classes(target, static_cast<size_t>(targets));
    if (key.index == kNoSample) {
      std::fill(elements.begin(), elements.end(), 0.0f);
      std::fill(classes.begin(), classes.end(), kIgnoredTarget);
    } else {
      CHECK_GE(key.index, 0);
      CHECK_LT(key.index, split_size);
      FillImage(split, key, elements, classes);
    }
    image += pixels;
    target += targets;
  }
  return absl::OkStatus();
}

}  // namespace lockstep
