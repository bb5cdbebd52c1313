#include "core/data/running_text.h"

namespace lockstep {

int64_t RunningText::size(Split split) const {
  if (split == Split::kTrain) return tokens(split) - context();
  return (tokens(split) - 1) / context();
}

absl::Status RunningText::FillWindow(Split split, const SampleKey& key,
                                     absl::Span<int32_t> window) const {
  return CopyTokens(split, split == Split::kTrain ? key.index : key.index * context(), window);
}

}  // namespace lockstep
