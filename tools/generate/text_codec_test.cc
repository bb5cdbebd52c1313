#include "tools/generate/text_codec.h"

#include <string>
#include <utility>
#include <vector>

#include "core/data/markov.h"
#include "core/data/shapes.h"
#include "core/data/testing.h"
#include "core/data/text.h"
#include "core/text/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Problem(const TextCodec& codec, const std::string& text) {
  const absl::Status status = codec.encode(text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(status.message());
}

TEST(TextCodecTest, CharactersOfATextFile) {
  TemporaryDirectory directory;
  std::string text;
  for (int i = 0; i < 30; ++i) text += "ab\u00E9\n";
  directory.Write("text.txt", text);
  const auto dataset = Text::Load(directory.path(), {.path = "text.txt", .context = 4});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const auto codec = MakeCodecOf(**dataset);
  ASSERT_TRUE(codec.ok()) << codec.status();
  EXPECT_THAT(codec->encode("\u00E9a\n").value(), ElementsAre(3, 1, 0));
  EXPECT_EQ(codec->decode({{2, 3, 0}}), "b\u00E9\n");
  EXPECT_EQ(codec->document_border, std::nullopt);
  EXPECT_THAT(Problem(*codec, "a#"), HasSubstr("no character '#' (U+0023)"));
  EXPECT_THAT(Problem(*codec, "a\xFF"), HasSubstr("not UTF-8"));
}

TEST(TextCodecTest, LettersAndNumbersOfMarkov) {
  const auto letters = Markov::Create({.source = {.vocabulary = 5}});
  ASSERT_TRUE(letters.ok()) << letters.status();
  auto codec = MakeCodecOf(**letters);
  EXPECT_THAT(codec->encode("edcba").value(), ElementsAre(4, 3, 2, 1, 0));
  EXPECT_EQ(codec->decode({{4, 0}}), "ea");
  for (const char* wrong : {"f", "A", " ", "\xFF"}) {
    EXPECT_THAT(Problem(*codec, wrong), HasSubstr("the letters a to e only"));
  }
  const auto numbers = Markov::Create({.source = {.vocabulary = 30}});
  ASSERT_TRUE(numbers.ok()) << numbers.status();
  codec = MakeCodecOf(**numbers);
  EXPECT_THAT(codec->encode(" 29  0 7 ").value(), ElementsAre(29, 0, 7));
  EXPECT_EQ(codec->decode({{29, 0}}), "29 0 ");
  for (const char* wrong : {"30", "-1", "x", "1,2"}) {
    EXPECT_THAT(Problem(*codec, wrong), HasSubstr("the numbers 0 to 29 only"));
  }
}

TEST(TextCodecTest, BytePairs) {
  TemporaryDirectory directory;
  directory.Write("encoder.json", TokensJson({"ab", "<|endoftext|>"}));
  directory.Write("vocab.bpe", "a b\n");
  auto pairs = BytePairs::Load(directory.path());
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  const auto codec = MakeBytePairCodec(*std::move(pairs));
  EXPECT_THAT(codec.encode("abc").value(), ElementsAre(256, 'c'));
  EXPECT_EQ(codec.decode({{256, 'c'}}), "abc");
  EXPECT_EQ(codec.document_border, 257);
}

TEST(TextCodecTest, ASeparatorEndsDocuments) {
  TemporaryDirectory directory;
  std::string text;
  for (int i = 0; i < 30; ++i) text += "abc\n";
  directory.Write("text.txt", text);
  const auto separator = [&](const std::string& character) {
    const auto dataset =
        Text::Load(directory.path(), {.path = "text.txt", .context = 4, .separator = character});
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return SeparatorOf(**dataset);
  };
  EXPECT_EQ(separator("\n"), 0);
  EXPECT_EQ(separator(""), std::nullopt);
  EXPECT_EQ(SeparatorOf(**Markov::Create({.source = {.vocabulary = 5}})), std::nullopt);

  EXPECT_THAT(LastDocument({1, 2}, 0).value(), ElementsAre(1, 2));
  EXPECT_THAT(LastDocument({1, 0, 2, 0, 3, 1}, 0).value(), ElementsAre(3, 1));
  for (const std::vector<int32_t>& none : {std::vector<int32_t>(), {0}, {1, 2, 0}}) {
    EXPECT_THAT(std::string(LastDocument(none, 0).status().message()),
                HasSubstr("behind the last separator"));
  }
}

TEST(TextCodecTest, OtherDataHasNone) {
  const auto shapes = Shapes::Create({});
  ASSERT_TRUE(shapes.ok()) << shapes.status();
  const auto codec = MakeCodecOf(**shapes);
  EXPECT_EQ(codec.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(codec.status().message()), HasSubstr("--bpe"));
}

}  // namespace
}  // namespace lockstep
