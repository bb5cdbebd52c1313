#include "core/data/running_text.h"

#include <algorithm>  // std::transform

namespace lockstep {

int64_t RunningText::size(Split split) const {
  if (split == Split::kTrain) return tokens(split) - context();
  return (tokens(split) - 1) / context();
}

absl::Status RunningText::FillWindow(Split split, const SampleKey& key,
                                     absl::Span<int32_t> window) const {
  return CopyTokens(split, split == Split::kTrain ? key.index : key.index * context(), window);
}

void RunningText::MarkEnds(Split /*split*/, const SampleKey& /*key*/,
                           absl::Span<const int32_t> window, absl::Span<uint8_t> ends) const {
  std::transform(window.begin(), window.end(), ends.begin(),
                 [this](int32_t token) { return token == *separator_ ? 1 : 0; });
}

}  // namespace lockstep
