#include "core/text/vocabulary.h"

#include <algorithm>  // std::sort
#include <cstddef>
#include <unordered_set>

#include "core/text/utf8.h"
#include "glog/logging.h"

namespace lockstep {

CharacterVocabulary::CharacterVocabulary(std::u32string_view text) {
  std::unordered_set<char32_t> distinct;
  for (char32_t character : text) distinct.insert(character);
  characters_.assign(distinct.begin(), distinct.end());
  std::sort(characters_.begin(), characters_.end());
  for (size_t i = 0; i < characters_.size(); ++i) {
    tokens_.emplace(characters_[i], static_cast<int32_t>(i));
  }
}

std::optional<int32_t> CharacterVocabulary::Token(char32_t character) const {
  const auto found = tokens_.find(character);
  if (found == tokens_.end()) return std::nullopt;
  return found->second;
}

std::string CharacterVocabulary::Decode(absl::Span<const int32_t> tokens) const {
  std::string text;
  for (int32_t token : tokens) {
    CHECK_GE(token, 0);
    CHECK_LT(token, size());
    AppendUtf8(characters_[token], text);
  }
  return text;
}

}  // namespace lockstep
