#pragma once

#include <cstdint>
#include <optional>

#include "core/data/token_dataset.h"

namespace lockstep {

// A data set of windows in two long texts, one for each split.
//
// Training sample i is the window of context + 1 tokens that begins at token i. Validation sample i
// begins at token i * context: its windows share one token with the next, so that every token but
// the first is a target once; a rest shorter than a window is left out.
class RunningText : public TokenDataset {
 public:
  // `separator`: the token that ends each document; none: all is one document.
  explicit RunningText(int64_t context, std::optional<int32_t> separator = std::nullopt)
      : TokenDataset(context), separator_(separator) {}

  bool packs_documents() const final { return separator_.has_value(); }
  std::optional<int32_t> separator() const { return separator_; }

  int64_t size(Split split) const final;

  // Tokens of a split; at least context + 1.
  virtual int64_t tokens(Split split) const = 0;

 protected:
  absl::Status FillWindow(Split split, const SampleKey& key,
                          absl::Span<int32_t> window) const final;

  void MarkEnds(Split split, const SampleKey& key, absl::Span<const int32_t> window,
                absl::Span<uint8_t> ends) const final;

  // Writes window.size() tokens from `begin` on, which are there.
  virtual absl::Status CopyTokens(Split split, int64_t begin, absl::Span<int32_t> window) const = 0;

 private:
  std::optional<int32_t> separator_;
};

}  // namespace lockstep
