#include "core/text/byte_pairs.h"

#include <algorithm>  // std::find
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/text/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class BytePairsTest : public testing::Test {
 protected:
  BytePairsTest() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = absl::StrCat(testing::TempDir(), "/byte_pairs_test.", test->name());
    std::filesystem::create_directories(folder_);
  }
  ~BytePairsTest() override { std::filesystem::remove_all(folder_); }

  // Without waiting for the disk, as fuzzing writes many.
  void Write(const std::string& name, const std::string& contents) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << contents;
  }

  absl::StatusOr<BytePairs> Load(const std::string& tokens, const std::string& merges) const {
    Write("encoder.json", tokens);
    Write("vocab.bpe", merges);
    return BytePairs::Load(folder_);
  }

  // What is wrong with files, after the name of the one it is in.
  std::string Problem(const std::string& file, const std::string& tokens,
                      const std::string& merges) {
    const absl::Status status = Load(tokens, merges).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    const std::string message(status.message()), prefix = "\"" + folder_ + "/" + file + "\": ";
    EXPECT_THAT(message, testing::StartsWith(prefix));
    return message.substr(prefix.size());
  }
  std::string ProblemWithTokens(const std::string& json) {
    return Problem("encoder.json", json, "");
  }
  std::string ProblemWithMerges(const std::string& merges) {
    return Problem("vocab.bpe", TokensJson({"ab", "abc"}), merges);
  }

  std::string folder_;
};

TEST_F(BytePairsTest, WithoutMergesBytesAreTokens) {
  const auto pairs = Load(TokensJson({}), "#version: 0.2\n");
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  EXPECT_EQ(pairs->vocabulary(), 256);
  EXPECT_EQ(pairs->end_of_text(), std::nullopt);
  EXPECT_THAT(pairs->Encode("a \n\xC3\xA9"), ElementsAre('a', ' ', '\n', 0xC3, 0xA9));
  EXPECT_THAT(pairs->Encode(""), IsEmpty());
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  EXPECT_EQ(pairs->Decode(pairs->Encode(all)), all);
}

TEST_F(BytePairsTest, TheFirstMergeOfTheListComesFirst) {
  // In "abc" the list joins b and c before a and b, though they stand further right.
  const auto late = Load(TokensJson({"bc", "ab", "abc"}), "#version: 0.2\nb c\na b\na bc\n");
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_THAT(late->Encode("abc"), ElementsAre(258));
  EXPECT_THAT(late->Encode("abab"), ElementsAre(257, 257));
  const auto early = Load(TokensJson({"bc", "ab", "abc"}), "a b\nb c\na bc\n");
  EXPECT_THAT(early->Encode("abc"), ElementsAre(257, 'c'));
  EXPECT_THAT(early->Encode("xbcab"), ElementsAre('x', 256, 257));
}

TEST_F(BytePairsTest, MergesRunFromLeftToRight) {
  const auto pairs = Load(TokensJson({"aa", "aaaa"}), "a a\naa aa\n");
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  EXPECT_THAT(pairs->Encode("aaa"), ElementsAre(256, 'a'));
  EXPECT_THAT(pairs->Encode("aaaaaaa"), ElementsAre(257, 256, 'a'));
}

// A list may name the pair of a token before the pair that makes it. Both b and c are joined
// wherever they stand before anything that this makes is looked at: else bc and b would be first.
TEST_F(BytePairsTest, AllOfOneMergeComesBeforeWhatItMakes) {
  const auto pairs = Load(TokensJson({"bc", "bcb"}), "bc b\nb c\n");
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  EXPECT_THAT(pairs->Encode("bcbc"), ElementsAre(256, 256));
  EXPECT_THAT(pairs->Encode("bcb"), ElementsAre(257));
}

TEST_F(BytePairsTest, NoMergeReachesIntoAnotherWord) {
  const auto pairs = Load(TokensJson({"ab", "\u0120a", "a\u0120"}), "a b\n\u0120 a\na \u0120\n");
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  EXPECT_THAT(pairs->Encode("a a ab"), ElementsAre('a', 257, ' ', 256));
  EXPECT_EQ(pairs->Decode({{257, 256, 258}}), " aaba ");
}

TEST_F(BytePairsTest, MergesJoinTheBytesOfACharacter) {
  // An e with acute accent, C3 A9; written U+00C3 U+00A9.
  const auto pairs = Load(TokensJson({"\u00C3\u00A9"}), "\u00C3 \u00A9\n");
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  EXPECT_THAT(pairs->Encode("\u00E9t\u00E9"), ElementsAre(256, 't', 256));
  EXPECT_THAT(pairs->Encode("\xC3 \xA9"), ElementsAre(0xC3, ' ', 0xA9));
  EXPECT_EQ(pairs->Decode({{256, 0xC3}}), "\u00E9\xC3");
}

TEST_F(BytePairsTest, SpecialTokensAreNotMadeOfText) {
  const auto pairs = Load(TokensJson({"<|endoftext|>"}), "#version: 0.2\n");
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  EXPECT_EQ(pairs->end_of_text(), 256);
  EXPECT_EQ(pairs->Encode("<|endoftext|>").size(), 13u);
  EXPECT_EQ(pairs->Decode({{256, 'a'}}), "<|endoftext|>a");
}

// The published algorithm as it stands: again and again the pair of the lowest rank, everywhere.
std::vector<std::string> MergeSlowly(
    std::vector<std::string> parts,
    const std::map<std::pair<std::string, std::string>, int>& ranks) {
  while (true) {
    const std::pair<std::string, std::string>* best = nullptr;
    int best_rank = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find({parts[i], parts[i + 1]});
      if (found == ranks.end() || (best != nullptr && found->second >= best_rank)) continue;
      best = &found->first;
      best_rank = found->second;
    }
    if (best == nullptr) return parts;
    std::vector<std::string> joined;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (i + 1 < parts.size() && parts[i] == best->first && parts[i + 1] == best->second) {
        joined.push_back(parts[i] + parts[i + 1]);
        ++i;
      } else {
        joined.push_back(parts[i]);
      }
    }
    parts = joined;
  }
}

// Random lists over three letters, in any order, and random words.
TEST_F(BytePairsTest, AgreesWithThePublishedAlgorithm) {
  uint32_t state = 7;
  const auto below = [&state](size_t n) {
    state = state * 1664525 + 1013904223;
    return (state >> 8) % n;
  };
  for (int round = 0; round < 60; ++round) {
    std::vector<std::string> tokens = {"a", "b", "c"};
    std::map<std::string, int> ids = {{"a", 'a'}, {"b", 'b'}, {"c", 'c'}};
    std::vector<std::pair<std::string, std::string>> list;
    for (int i = 0; i < 14; ++i) {
      const std::string left = tokens[below(tokens.size())], right = tokens[below(tokens.size())];
      if (std::find(list.begin(), list.end(), std::pair(left, right)) != list.end()) continue;
      list.insert(list.begin() + below(list.size() + 1), {left, right});
      if (ids.emplace(left + right, 253 + tokens.size()).second) tokens.push_back(left + right);
    }
    std::string merges;
    std::map<std::pair<std::string, std::string>, int> ranks;
    for (const auto& pair : list) {
      absl::StrAppend(&merges, pair.first, " ", pair.second, "\n");
      ranks.emplace(pair, ranks.size());
    }
    const auto pairs = Load(TokensJson({tokens.begin() + 3, tokens.end()}), merges);
    ASSERT_TRUE(pairs.ok()) << pairs.status();
    for (int word = 0; word < 50; ++word) {
      std::vector<std::string> letters;
      std::string text;
      for (size_t i = 1 + below(30); i > 0; --i) {
        letters.emplace_back(1, static_cast<char>('a' + below(3)));
        text += letters.back();
      }
      std::vector<int32_t> expected;
      for (const std::string& part : MergeSlowly(letters, ranks)) expected.push_back(ids.at(part));
      ASSERT_EQ(pairs->Encode(text), expected) << merges << text;
    }
  }
}

// Neither quadratic in time nor deep in calls.
TEST_F(BytePairsTest, TakesWordsOfAnyLength) {
  const auto pairs = Load(TokensJson({"aa", "aaaa"}), "a a\naa aa\n");
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  const std::string text(200'003, 'a');
  const std::vector<int32_t> tokens = pairs->Encode(text);
  EXPECT_EQ(tokens.size(), 50'002u);
  EXPECT_EQ(pairs->Decode(tokens), text);
}

TEST_F(BytePairsTest, NamesFilesThatAreMissing) {
  const absl::Status status = BytePairs::Load(folder_ + "/none").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("cannot read \"" + folder_ + "/none/encoder.json\""),
                    HasSubstr("a folder with encoder.json and vocab.bpe")));
  Write("encoder.json", TokensJson({}));
  EXPECT_THAT(std::string(BytePairs::Load(folder_).status().message()),
              HasSubstr("cannot read \"" + folder_ + "/vocab.bpe\""));
}

TEST_F(BytePairsTest, RefusesOtherTokens) {
  EXPECT_EQ(ProblemWithTokens("{\"a\": 0,"), "is not valid JSON at byte 9");
  EXPECT_EQ(ProblemWithTokens("{\"a\": 1e999}"), "holds a number that is too large");
  EXPECT_EQ(
      ProblemWithTokens("{\"a\": " + std::string(300'000, '[') + std::string(300'000, ']') + "}"),
      "holds lists or objects too deep inside others");
  EXPECT_EQ(ProblemWithTokens("[1]"), "is no map from tokens to ids");
  EXPECT_EQ(ProblemWithTokens("{}"), "is no map from tokens to ids");
  EXPECT_EQ(ProblemWithTokens(R"({"a b": 0})"),
            "token \"a b\" is not written in the alphabet that stands for bytes");
  EXPECT_THAT(ProblemWithTokens(R"({"": 0})"), HasSubstr("token \"\" is not written"));
  EXPECT_EQ(ProblemWithTokens(R"({"a": 0, "b": 0})"), "two tokens have the id 0");
  for (const char* id : {"2", "-1", "1.5", "\"1\"", "null"}) {
    EXPECT_THAT(ProblemWithTokens(absl::StrCat("{\"a\": 0, \"b\": ", id, "}")),
                AllOf(HasSubstr("token \"b\" has the id"),
                      HasSubstr("but ids are 0 to 1, one for each token")));
  }
  EXPECT_EQ(ProblemWithTokens(R"({"a": 0, "b": 1})"),
            "has no token for the single byte 0, so not every text has tokens");
}

TEST_F(BytePairsTest, RefusesOtherMerges) {
  const std::string no_pair = "is no pair of tokens with a blank between them";
  EXPECT_EQ(ProblemWithMerges("#version: 0.2\nab\n"), "line 2, \"ab\", " + no_pair);
  EXPECT_EQ(ProblemWithMerges("a b\n\nab c\n"), "line 2, \"\", " + no_pair);
  EXPECT_EQ(ProblemWithMerges("a  b\n"), "line 1, \"a  b\", " + no_pair);
  EXPECT_EQ(ProblemWithMerges("a b\r\n"), "line 1, \"a b\\r\", " + no_pair);
  EXPECT_EQ(ProblemWithMerges("a \xFF\n"), "line 1, \"a \xFF\", " + no_pair);
  const std::string unknown =
      "joins what encoder.json does not know: both tokens and what they "
      "make must be there";
  EXPECT_EQ(ProblemWithMerges("a b\nb c\n"), "line 2, \"b c\", " + unknown);
  EXPECT_EQ(ProblemWithMerges("a bc\n"), "line 1, \"a bc\", " + unknown);
  EXPECT_EQ(ProblemWithMerges(" a\n"), "line 1, \" a\", " + unknown);
  EXPECT_EQ(ProblemWithMerges("a b\nab c\na b\n"), "line 3, \"a b\", comes a second time");
}

// Cut or changed anywhere, the files are refused, or understood; whatever is understood encodes.
TEST_F(BytePairsTest, BrokenFilesAreRefusedOrUsable) {
  const std::string tokens = TokensJson({"ab", "abc"}), merges = "#version: 0.2\na b\nab c\n";
  uint32_t state = 3;
  const auto below = [&state](size_t n) {
    state = state * 1664525 + 1013904223;
    return (state >> 8) % n;
  };
  int usable = 0;
  for (int i = 0; i < 500; ++i) {
    std::string changed[2] = {tokens, merges};
    std::string& text = changed[i % 2];
    if (below(4) == 0) {
      text.resize(below(text.size()));
    } else {
      text[below(text.size())] = static_cast<char>(below(256));
    }
    const auto pairs = Load(changed[0], changed[1]);
    if (pairs.ok()) {
      ++usable;
      EXPECT_EQ(pairs->Decode(pairs->Encode("abc abab \xFF")), "abc abab \xFF");
    } else {
      EXPECT_THAT(std::string(pairs.status().message()), HasSubstr(folder_));
    }
  }
  EXPECT_GT(usable, 0);
}

TEST_F(BytePairsTest, EmptyMergesAndTokensThatComeTwiceAreRefused) {
  EXPECT_THAT(Problem("vocab.bpe", TokensJson({"ab", "abc"}), ""), HasSubstr("is empty"));
  std::string tokens = TokensJson({"ab"});
  tokens.insert(1, "\"ab\": 5, ");
  EXPECT_THAT(Problem("encoder.json", tokens, "#version: 0.2\n"),
              HasSubstr("has the token \"ab\" twice"));
}

}  // namespace
}  // namespace lockstep
