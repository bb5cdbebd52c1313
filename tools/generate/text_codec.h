#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/data/dataset.h"
#include "core/text/byte_pairs.h"

namespace lockstep {

// How a language model's tokens read as text.
struct TextCodec {
  // InvalidArgument for text that the vocabulary cannot express.
  std::function<absl::StatusOr<std::vector<int32_t>>(const std::string& text)> encode;
  // Requires tokens of the vocabulary. What stands for a part of a character gives a part of one.
  std::function<std::string(absl::Span<const int32_t> tokens)> decode;
  // The token that begins and ends a document; nothing where there is none.
  std::optional<int32_t> document_border = std::nullopt;
};

// GPT-2's byte pairs.
TextCodec MakeBytePairCodec(BytePairs pairs);

// What belongs to a data set: the characters of `text`; for `markov`, whose tokens mean nothing,
// the letters from a on, or numbers with blanks between them where 26 letters do not do.
// FailedPrecondition for one whose tokens it does not know, as it is with files of tokens. The
// data set outlives the codec.
absl::StatusOr<TextCodec> MakeCodecOf(const Dataset& dataset);

}  // namespace lockstep
