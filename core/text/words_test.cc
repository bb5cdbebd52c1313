#include "core/text/words.h"

#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Words(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const size_t bytes = FirstWordBytes(text);
    EXPECT_GT(bytes, 0u);
    EXPECT_LE(bytes, text.size());
    words.emplace_back(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  return words;
}

TEST(WordsTest, ABlankBelongsToTheWordAfterIt) {
  EXPECT_THAT(Words("Hello world, 42 times!"),
              ElementsAre("Hello", " world", ",", " 42", " times", "!"));
  EXPECT_THAT(Words(" a ?! b"), ElementsAre(" a", " ?!", " b"));
  EXPECT_THAT(Words("abc123def"), ElementsAre("abc", "123", "def"));
}

TEST(WordsTest, ContractionsStandAlone) {
  EXPECT_THAT(Words("I'm you're he's we've they'll she'd don't"),
              ElementsAre("I", "'m", " you", "'re", " he", "'s", " we", "'ve", " they", "'ll",
                          " she", "'d", " don", "'t"));
  // Only in small letters, only of this apostrophe, and wherever a word could begin.
  EXPECT_THAT(Words("I'M it\u2019s"), ElementsAre("I", "'", "M", " it", "\u2019", "s"));
  EXPECT_THAT(Words("'sun 'sun"), ElementsAre("'s", "un", " '", "sun"));
  EXPECT_THAT(Words("'really"), ElementsAre("'re", "ally"));
  EXPECT_THAT(Words("'lord 'x"), ElementsAre("'", "lord", " '", "x"));
  // Inside of other signs there is none.
  EXPECT_THAT(Words("!'s"), ElementsAre("!'", "s"));
}

TEST(WordsTest, WhiteSpaceLeavesItsLastCharacterToWhatFollows) {
  EXPECT_THAT(Words("a  b"), ElementsAre("a", " ", " b"));
  EXPECT_THAT(Words("a\nb\n"), ElementsAre("a", "\n", "b", "\n"));
  EXPECT_THAT(Words("a\n\n\nb"), ElementsAre("a", "\n\n", "\n", "b"));
  EXPECT_THAT(Words("a\n    b"), ElementsAre("a", "\n   ", " b"));
  EXPECT_THAT(Words("a\t b\r\n\tc"), ElementsAre("a", "\t", " b", "\r\n", "\t", "c"));
  EXPECT_THAT(Words("a  "), ElementsAre("a", "  "));
  EXPECT_THAT(Words(" "), ElementsAre(" "));
  EXPECT_THAT(Words("\n"), ElementsAre("\n"));
  // No-break space, ideographic space and line separator are white space of several bytes.
  EXPECT_THAT(Words("a\u00A0\u3000\u2028b"), ElementsAre("a", "\u00A0\u3000", "\u2028", "b"));
  // The zero-width space is none, nor is U+001C, which Python's str.isspace takes for some.
  EXPECT_THAT(Words("a\u200Bb"), ElementsAre("a", "\u200B", "b"));
  EXPECT_THAT(Words("a\x1C\x1C"
                    "b"),
              ElementsAre("a", "\x1C\x1C", "b"));
}

TEST(WordsTest, KnowsTheCharactersOfUnicode) {
  // Letters: Latin with marks composed, Greek, Cyrillic, Han, kana, Hebrew, Arabic, and of four
  // bytes: Deseret.
  EXPECT_THAT(Words("Ünïcödé λόγος Мир 世界かな שלום سلام \U00010400\U00010428"),
              ElementsAre("Ünïcödé", " λόγος", " Мир", " 世界かな", " שלום", " سلام",
                          " \U00010400\U00010428"));
  // A mark by itself is no letter.
  EXPECT_THAT(Words("e\u0301t"), ElementsAre("e", "\u0301", "t"));
  // Numbers: superscripts, fractions, Roman, Arabic-Indic.
  EXPECT_THAT(Words("x²½Ⅷ٣y"), ElementsAre("x", "²½Ⅷ٣", "y"));
  // Others: emoji with joiners and modifiers, currency, punctuation.
  EXPECT_THAT(Words("\U0001F469\u200D\U0001F680 \U0001F44D\U0001F3FD\u20AC\u00BF?"),
              ElementsAre("\U0001F469\u200D\U0001F680", " \U0001F44D\U0001F3FD\u20AC\u00BF?"));
}

TEST(WordsTest, WhatIsNoUtf8IsNeitherLetterNorSpace) {
  EXPECT_THAT(Words("a\xFF\xC3 \x80z"), ElementsAre("a", "\xFF\xC3", " \x80", "z"));
  EXPECT_THAT(Words("\xE2\x82"), ElementsAre("\xE2\x82"));          // cut off
  EXPECT_THAT(Words("\xED\xA0\x80"), ElementsAre("\xED\xA0\x80"));  // a surrogate
  EXPECT_THAT(Words(std::string_view("\0\0a", 3)), ElementsAre(std::string(2, '\0'), "a"));
}

// Every text is its words, joined: no byte is lost or doubled, whatever stands there.
TEST(WordsTest, WordsCoverTheText) {
  const std::string pieces[] = {
      " ",    "\n",     "'",    "s", "ll",         "7", "\u00BD",
      "\xFF", "\u3000", "\xC3", "é", "\U0001F600", "!", std::string(1, 0)};
  uint32_t state = 1;
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i) {
      state = state * 1664525 + 1013904223;
      text += pieces[(state >> 16) % std::size(pieces)];
    }
    std::string joined;
    for (const std::string& word : Words(text)) joined += word;
    ASSERT_EQ(joined, text);
  }
}

}  // namespace
}  // namespace lockstep
