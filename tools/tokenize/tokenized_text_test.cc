#include "tools/tokenize/tokenized_text.h"

#include <algorithm>  // std::is_sorted
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/text/byte_pairs.h"
#include "core/text/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

TEST(TrainingBytesTest, CountsCharacters) {
  EXPECT_EQ(TrainingBytes(std::string(103, 'a'), 0.1), 92u);  // floor(103 * 0.9)
  EXPECT_EQ(TrainingBytes("0123456789", 0.1), 9u);
  EXPECT_EQ(TrainingBytes("0123456789", 0), 10u);
  EXPECT_EQ(TrainingBytes("0123456789", 0.99), 0u);
  EXPECT_EQ(TrainingBytes("", 0.1), 0u);
  // Four characters of 1, 2, 3 and 4 bytes.
  const std::string text = "a\u00E9\u20AC\U0001F600";
  EXPECT_EQ(TrainingBytes(text, 0.25), 6u);
  EXPECT_EQ(TrainingBytes(text, 0.5), 3u);
  EXPECT_EQ(TrainingBytes(text, 0.7), 1u);
}

TEST(TokenizeTest, TellsHowFarItIs) {
  const std::string folder = testing::TempDir() + "/tokenized_text_test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/encoder.json") << TokensJson({"\u0120a"});
  std::ofstream(folder + "/vocab.bpe") << "\u0120 a\n";
  const auto pairs = BytePairs::Load(folder);
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  std::vector<size_t> told;
  EXPECT_THAT(Tokenize(*pairs, "a a b", [&](size_t bytes) { told.push_back(bytes); }),
              ElementsAre('a', 256, ' ', 'b'));
  EXPECT_THAT(told, ElementsAre(5));
  std::string text;
  while (text.size() < 1'000'000) text += " a lot";
  told.clear();
  EXPECT_EQ(Tokenize(*pairs, text, [&](size_t bytes) { told.push_back(bytes); }),
            pairs->Encode(text));
  EXPECT_EQ(told.size(), 4u);
  EXPECT_EQ(told.back(), text.size());
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_THAT(Tokenize(*pairs, "", [](size_t) {}), testing::IsEmpty());
}

}  // namespace
}  // namespace lockstep
