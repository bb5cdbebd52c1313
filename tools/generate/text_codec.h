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

// The token that ends each document of a data set whose samples are packed from documents; nothing
// for others. A model that was trained on such samples has seen no token beyond a border.
std::optional<int32_t> SeparatorOf(const Dataset& dataset);

// The tokens behind the last separator: all that a model of packed documents sees of a text.
// InvalidArgument where there are none.
absl::StatusOr<std::vector<int32_t>> LastDocument(const std::vector<int32_t>& text,
                                                  int32_t separator);

}  // namespace lockstep
