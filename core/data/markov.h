#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/philox.h"
#include "core/data/markov_source.h"
#include "core/data/token_dataset.h"

namespace lockstep {

struct MarkovOptions {
  MarkovSourceOptions source = {};
  int64_t context = 64;  // tokens that the model sees at once
  // Tokens of a document on average; each has 1 to 2 * document_tokens - 1, all lengths alike. A
  // sample is packed from such documents. 0: a sample is one text.
  int64_t document_tokens = 0;

  // So many that a run hardly ever sees a text twice: it cannot learn them by heart.
  int64_t train_samples = int64_t{1} << 40;
  int64_t validation_samples = 512;
};

// A built-in data set that needs no download: text from a MarkovSource, so that the lowest possible
// loss is known. Sample i of a split is a text of context + 1 tokens of its own, written when it is
// asked for; the splits use different keys. With `document_tokens` it is packed from documents,
// each a text of its own.
class Markov final : public TokenDataset {
 public:
  // InvalidArgument as MarkovSource::Create, and where the context or a split is below 1.
  static absl::StatusOr<std::shared_ptr<const Markov>> Create(const MarkovOptions& options);

  std::string Describe() const override;
  int64_t classes() const override { return source_.options().vocabulary; }
  int64_t size(Split split) const override;
  std::optional<double> entropy_rate() const override { return source_.entropy_rate(); }
  // None of packed documents.
  std::optional<double> loss_floor() const override;
  bool packs_documents() const override { return document_tokens_ > 0; }

  const MarkovSource& source() const { return source_; }

 protected:
  absl::Status FillWindow(Split split, const SampleKey& key,
                          absl::Span<int32_t> window) const override;
  void MarkEnds(Split split, const SampleKey& key, absl::Span<const int32_t> window,
                absl::Span<uint8_t> ends) const override;

 private:
  // The lengths of the documents of a window, the last one cut off at its end.
  std::vector<int64_t> Lengths(Split split, const SampleKey& key, int64_t tokens) const;
  const Philox& TextOf(Split split) const { return split == Split::kTrain ? train_ : validation_; }

  Markov(const MarkovOptions& options, MarkovSource source);

  MarkovSource source_;
  int64_t document_tokens_;
  int64_t train_samples_;
  int64_t validation_samples_;
  Philox train_;
  Philox validation_;
};

}  // namespace lockstep
