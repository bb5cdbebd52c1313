#include "core/data/token_dataset.h"

#include <algorithm>  // std::copy, std::fill
#include <vector>

#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep {

TokenDataset::TokenDataset(int64_t context) : context_(context) { CHECK_GE(context, 1); }

absl::Status TokenDataset::Fill(Split split, absl::Span<const SampleKey> keys,
                                const Batch& batch) const {
  const int64_t tokens = static_cast<int64_t>(keys.size()) * context_;
  const int64_t split_size = size(split);
  CHECK_EQ(batch.inputs.elements(), tokens) << batch.inputs.ToString();
  CHECK_EQ(batch.targets.elements(), tokens) << batch.targets.ToString();
  int32_t* inputs = batch.inputs.data<int32_t>();
  int32_t* targets = batch.targets.data<int32_t>();
  std::vector<int32_t> window(context_ + 1);
  for (const SampleKey& key : keys) {
    if (key.index == kNoSample) {
      std::fill(inputs, inputs + context_, 0);
      std::fill(targets, targets + context_, kIgnoredTarget);
    } else {
      CHECK_GE(key.index, 0);
      CHECK_LT(key.index, split_size);
      LS_RETURN_IF_ERROR(FillWindow(split, key, absl::MakeSpan(window)));
      std::copy(window.begin(), window.end() - 1, inputs);
      std::copy(window.begin() + 1, window.end(), targets);
    }
    inputs += context_;
    targets += context_;
  }
  return absl::OkStatus();
}

}  // namespace lockstep
