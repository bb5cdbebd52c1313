#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "absl/types/span.h"

namespace lockstep {

// A vocabulary of characters: token i is the i-th smallest code point that it was built from.
class CharacterVocabulary {
 public:
  // Has the distinct characters of a text.
  explicit CharacterVocabulary(std::u32string_view text);

  int64_t size() const { return static_cast<int64_t>(characters_.size()); }

  // In ascending order: characters()[token].
  const std::u32string& characters() const { return characters_; }

  // Nothing for a character that the vocabulary lacks.
  std::optional<int32_t> Token(char32_t character) const;

  // The text of some tokens, in UTF-8. Requires each in [0, size()).
  std::string Decode(absl::Span<const int32_t> tokens) const;

 private:
  std::u32string characters_;
  std::unordered_map<char32_t, int32_t> tokens_;
};

}  // namespace lockstep
