#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/data/dataset.h"

namespace lockstep {

// A data set of token sequences, filled window by window: a window of context + 1 tokens gives the
// inputs (all but the last) and the targets (all but the first). A window may have the tokens of
// several documents, one behind the other; the last token of each has no target.
class TokenDataset : public Dataset {
 public:
  // Requires context >= 1.
  explicit TokenDataset(int64_t context);

  Task task() const final { return Task::kLanguageModel; }
  Shape input_shape() const final { return {context_}; }
  Shape target_shape() const final { return {context_}; }
  DType input_dtype() const final { return DType::kI32; }
  absl::Status Fill(Split split, absl::Span<const SampleKey> keys, const Batch& batch) const final;
  absl::StatusOr<int64_t> CountTargets(Split split, const SampleKey& key) const final;

  // Tokens that the model sees at once: `time` of the batch.
  int64_t context() const { return context_; }

 protected:
  // Writes the context + 1 tokens of one window. An error says which tokens cannot be read.
  virtual absl::Status FillWindow(Split split, const SampleKey& key,
                                  absl::Span<int32_t> window) const = 0;

  // Where packs_documents(): which of a window's tokens, as FillWindow writes them, end a document.
  // `ends` has an element for each of them, 0 at first.
  virtual void MarkEnds(Split /*split*/, const SampleKey& /*key*/,
                        absl::Span<const int32_t> /*window*/, absl::Span<uint8_t> /*ends*/) const {}

 private:
  // A window, and which of its tokens end a document.
  struct Window {
    std::vector<int32_t> tokens;
    std::vector<uint8_t> ends;
  };
  absl::Status Read(Split split, const SampleKey& key, Window& window) const;

  int64_t context_;
};

}  // namespace lockstep
