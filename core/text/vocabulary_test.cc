#include "core/text/vocabulary.h"

#include <cstdint>
#include <optional>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(CharacterVocabulary, SortsDistinctCharacters) {
  const CharacterVocabulary vocabulary(U"ba\u20ACn\nana");
  EXPECT_EQ(vocabulary.characters(), U"\nabn\u20AC");
  EXPECT_EQ(vocabulary.size(), 5);
  EXPECT_EQ(vocabulary.Token(U'\n'), 0);
  EXPECT_EQ(vocabulary.Token(U'\u20AC'), 4);
  EXPECT_EQ(vocabulary.Token(U'c'), std::nullopt);
}

TEST(CharacterVocabulary, Decodes) {
  const CharacterVocabulary vocabulary(U"ba\u20ACn\nana");
  EXPECT_EQ(vocabulary.Decode(std::vector<int32_t>{2, 1, 3, 4, 0}), "ban\xE2\x82\xAC\n");
}

}  // namespace
}  // namespace lockstep
