#include "core/text/utf8.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const std::string& text) {
  const absl::Status status = DecodeUtf8(text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(Utf8, DecodesOneToFourBytes) {
  const absl::StatusOr<std::u32string> characters =
      DecodeUtf8("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z");
  ASSERT_TRUE(characters.ok()) << characters.status();
  EXPECT_EQ(*characters, U"a\u00E9\u20AC\U0001F600z");
  EXPECT_EQ(DecodeUtf8("").value(), U"");
  EXPECT_EQ(DecodeUtf8(absl::string_view("\0x", 2)).value(), std::u32string(U"\0x", 2));
}

TEST(Utf8, EveryCharacterComesBack) {
  for (char32_t character = 0; character <= 0x10FFFF; ++character) {
    if (character == 0xD800) character = 0xE000;
    std::string text;
    AppendUtf8(character, text);
    ASSERT_EQ(text.size(), Utf8Bytes(character));
    const absl::StatusOr<std::u32string> back = DecodeUtf8(text);
    ASSERT_TRUE(back.ok()) << static_cast<uint32_t>(character) << " " << back.status();
    ASSERT_EQ(*back, std::u32string(1, character));
  }
}

// The cases of RFC 3629 and of the Unicode standard, section 3.9.
TEST(Utf8, RefusesWhatIsNotUtf8) {
  EXPECT_THAT(ErrorOf("ab\xFFz"), HasSubstr("not UTF-8 at byte offset 2 (byte 0xFF)"));
  EXPECT_THAT(ErrorOf("\x80"), HasSubstr("offset 0"));              // no lead
  EXPECT_THAT(ErrorOf("a\xC3"), HasSubstr("offset 1"));             // cut off
  EXPECT_THAT(ErrorOf("a\xC3z"), HasSubstr("offset 1"));            // no continuation
  EXPECT_THAT(ErrorOf("\xC0\x80"), HasSubstr("offset 0"));          // overlong
  EXPECT_THAT(ErrorOf("\xE0\x9F\xBF"), HasSubstr("offset 0"));      // overlong
  EXPECT_THAT(ErrorOf("\xF0\x8F\xBF\xBF"), HasSubstr("offset 0"));  // overlong
  EXPECT_THAT(ErrorOf("\xED\xA0\x80"), HasSubstr("offset 0"));      // surrogate
  EXPECT_THAT(ErrorOf("\xF4\x90\x80\x80"), HasSubstr("offset 0"));  // above U+10FFFF
  EXPECT_THAT(ErrorOf("\xF5\x80\x80\x80"), HasSubstr("offset 0"));
}

TEST(Utf8, DescribesCharacters) {
  EXPECT_EQ(DescribeCharacter(U'x'), "'x' (U+0078)");
  EXPECT_EQ(DescribeCharacter(0x20AC), "'\xE2\x82\xAC' (U+20AC)");
  EXPECT_EQ(DescribeCharacter(U'\t'), "U+0009");
}

}  // namespace
}  // namespace lockstep
