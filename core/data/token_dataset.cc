#include "core/data/token_dataset.h"

#include <algorithm>
#include <vector>

#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep {

TokenDataset::TokenDataset(int64_t context) : context_(context) { CHECK_GE(context, 1); }

absl::Status TokenDataset::Read(Split split, const SampleKey& key, Window& window) const {
  CHECK_GE(key.index, 0);
  CHECK_LT(key.index, size(split));
  window.tokens.resize(static_cast<size_t>(context_ + 1));
  window.ends.assign(window.tokens.size(), 0);
  LS_RETURN_IF_ERROR(FillWindow(split, key, absl::MakeSpan(window.tokens)));
  if (packs_documents()) MarkEnds(split, key, window.tokens, absl::MakeSpan(window.ends));
  return absl::OkStatus();
}

absl::Status TokenDataset::Fill(Split split, absl::Span<const SampleKey> keys,
                                const Batch& batch) const {
  const int64_t tokens = static_cast<int64_t>(keys.size()) * context_;
  CHECK_EQ(batch.inputs.elements(), tokens) << batch.inputs.ToString();
  CHECK_EQ(batch.targets.elements(), tokens) << batch.targets.ToString();
  CHECK_EQ(batch.documents.defined(), packs_documents());
  int32_t* inputs = batch.inputs.data<int32_t>();
  int32_t* targets = batch.targets.data<int32_t>();
  int32_t* documents = packs_documents() ? batch.documents.data<int32_t>() : nullptr;
  Window window;
  for (const SampleKey& key : keys) {
    if (key.index == kNoSample) {
      std::fill(inputs, inputs + context_, 0);
      std::fill(targets, targets + context_, kIgnoredTarget);
      if (documents != nullptr) std::fill(documents, documents + context_, 0);
    } else {
      LS_RETURN_IF_ERROR(Read(split, key, window));
      std::copy(window.tokens.begin(), window.tokens.end() - 1, inputs);
      std::copy(window.tokens.begin() + 1, window.tokens.end(), targets);
      int32_t first = 0;
      for (int32_t t = 0; documents != nullptr && t < context_; ++t) {
        documents[t] = first;
        if (window.ends[static_cast<size_t>(t)] == 0) continue;
        targets[t] = kIgnoredTarget;
        first = t + 1;
      }
    }
    inputs += context_;
    targets += context_;
    if (documents != nullptr) documents += context_;
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> TokenDataset::CountTargets(Split split, const SampleKey& key) const {
  if (!packs_documents()) return context_;
  Window window;
  LS_RETURN_IF_ERROR(Read(split, key, window));
  return std::count(window.ends.begin(), window.ends.end() - 1, 0);
}

}  // namespace lockstep
