#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/data/dataset.h"
#include "core/text/byte_pairs.h"

namespace lockstep {

// How a language model's tokens read as text.
class TextCodec {
 public:
  virtual ~TextCodec() = default;

  // InvalidArgument for text that the vocabulary cannot express.
  virtual absl::StatusOr<std::vector<int32_t>> Encode(const std::string& text) const = 0;
  // Requires tokens of the vocabulary. What stands for a part of a character gives a part of one.
  virtual std::string Decode(absl::Span<const int32_t> tokens) const = 0;
  // The token that begins and ends a document; nothing where there is none.
  virtual std::optional<int32_t> document_border() const { return std::nullopt; }
};

// GPT-2's byte pairs.
std::unique_ptr<TextCodec> MakeBytePairCodec(BytePairs pairs);

// What belongs to a data set: the characters of `text`; for `markov`, whose tokens mean nothing,
// the letters from a on, or numbers with blanks between them where 26 letters do not do.
// FailedPrecondition for one whose tokens it does not know, as it is with files of tokens. The
// data set outlives the codec.
absl::StatusOr<std::unique_ptr<TextCodec>> MakeCodecOf(const Dataset& dataset);

}  // namespace lockstep
