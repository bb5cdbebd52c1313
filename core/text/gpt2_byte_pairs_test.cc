// GPT-2's published vocabulary in LOCKSTEP_DATA/gpt2-bpe. The ids are those on which three other
// implementations agree: tiktoken 0.14.0, tokenizers 0.23.3, and the algorithm of
// src/encoder.py of openai/gpt-2.

#include <cstdint>
#include <cstdlib>  // std::getenv
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/file.h"
#include "core/text/byte_pairs.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using Tokens = std::vector<int32_t>;

class Gpt2BytePairsTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* directory = std::getenv("LOCKSTEP_DATA");
    ASSERT_NE(directory, nullptr) << "name the folder with gpt2-bpe/ by LOCKSTEP_DATA";
    data_ = directory;
    auto pairs = BytePairs::Load(data_ + "/gpt2-bpe");
    ASSERT_TRUE(pairs.ok()) << pairs.status();
    pairs_ = *std::move(pairs);
  }

  void ExpectTokens(const std::string& text, const Tokens& expected) {
    EXPECT_EQ(pairs_->Encode(text), expected) << text;
    EXPECT_EQ(pairs_->Decode(expected), text);
  }

  // A whole file: how many tokens it has, and the 64-bit FNV-1a of their ids as four bytes each,
  // the lowest first.
  void ExpectFile(const std::string& name, size_t count, uint64_t hash) {
    const auto text = ReadFile(data_ + "/" + name);
    ASSERT_TRUE(text.ok()) << text.status();
    const Tokens tokens = pairs_->Encode(*text);
    EXPECT_EQ(tokens.size(), count);
    uint64_t fnv = 14695981039346656037u;
    for (const int32_t token : tokens) {
      for (int shift = 0; shift < 32; shift += 8) {
        fnv = (fnv ^ (static_cast<uint32_t>(token) >> shift & 0xFF)) * 1099511628211u;
      }
    }
    EXPECT_EQ(fnv, hash);
    EXPECT_EQ(pairs_->Decode(tokens), *text);
  }

  std::string data_;
  std::optional<BytePairs> pairs_;
};

TEST_F(Gpt2BytePairsTest, HasGpt2sVocabulary) {
  EXPECT_EQ(pairs_->vocabulary(), 50257);
  EXPECT_EQ(pairs_->end_of_text(), 50256);
}

TEST_F(Gpt2BytePairsTest, Words) {
  ExpectTokens("Hello world", {15496, 995});
  ExpectTokens("supercalifragilisticexpialidocious antidisestablishmentarianism",
               {16668, 9948, 361, 22562, 346, 396, 501, 42372, 498, 312, 32346, 1885, 29207, 44390,
                3699, 1042});
  ExpectTokens("2023-07-04 3.14159 1,000,000 x²½Ⅷ٣",
               {1238, 1954, 12,  2998, 12,    3023,  513, 13,  1415, 19707, 352, 11,
                830,  11,   830, 2124, 31185, 23141, 158, 227, 100,  149,   96});
  ExpectTokens("<|endoftext|> is text", {27, 91, 437, 1659, 5239, 91, 29, 318, 2420});
}

TEST_F(Gpt2BytePairsTest, Contractions) {
  ExpectTokens("I'm sure you're right: he's gone, we've seen it, they'll say she'd don't.",
               {40,   1101, 1654, 345, 821, 826,  25,  339, 338,  3750, 11,  356,
                1053, 1775, 340,  11,  484, 1183, 910, 673, 1549, 836,  470, 13});
  ExpectTokens("I'M 'RE it’s 'sun", {40, 6, 44, 705, 2200, 340, 447, 247, 82, 705, 19155});
  ExpectTokens("!'s ?'ll (don't)", {13679, 82, 5633, 6, 297, 357, 9099, 470, 8});
}

TEST_F(Gpt2BytePairsTest, SpacesAndNewlines) {
  ExpectTokens("a  b   c\n\n\nd\t\te  \r\n  f ", {64, 220, 275, 220, 220, 269, 628, 198, 67, 197,
                                                  197, 68, 220, 220, 201, 198, 220, 277, 220});
  ExpectTokens("   leading and trailing   ", {220, 220, 3756, 290, 25462, 220, 220, 220});
  ExpectTokens(
      "def f(x):\n    return x**2  # square\n",
      {4299, 277, 7, 87, 2599, 198, 220, 220, 220, 1441, 2124, 1174, 17, 220, 1303, 6616, 198});
}

TEST_F(Gpt2BytePairsTest, Unicode) {
  ExpectTokens(
      "Ünïcödé λόγος Мир 世界かな שלום سلام",
      {127,   250,   77,    26884, 66,    9101,  67,    2634,  7377,  119,   139,  234,   42063,
       26517, 35558, 12466, 250,   18849, 21169, 220,   10310, 244,   45911, 234,  27370, 26945,
       14360, 102,   40010, 27072, 147,   251,   17550, 111,   13862, 12919, 25405});
  ExpectTokens("\U0001F469\u200D\U0001F680 \U0001F44D\U0001F3FD€",
               {41840, 102, 447, 235, 8582, 248, 222, 50169, 235, 8582, 237, 121, 26391});
  ExpectTokens(
      "e\u0301t\u00A0\u3000\u2028b\u200Bc\u0085d\x1C\x1C"
      "e",
      {68, 136, 223, 83, 1849, 5099, 222, 447, 101, 65, 9525, 66, 126, 227, 67, 216, 216, 68});
  ExpectTokens(std::string("\0\x01\x7F", 3) + "\u00AD\uFFFD\uFEFF",
               {188, 189, 221, 3907, 4210, 171, 119, 123});
}

TEST_F(Gpt2BytePairsTest, WholeBooks) {
  ExpectFile("tinyshakespeare/input.txt", 338025, 0xe22fcd868ca90167);
  ExpectFile("war-and-peace/war_and_peace_body.txt", 792622, 0x7d84c72631e80994);
}

}  // namespace
}  // namespace lockstep
