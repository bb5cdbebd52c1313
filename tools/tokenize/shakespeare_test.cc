// Shakespeare as nanoGPT prepares it (data/shakespeare/readme.md there): 301,966 training tokens
// and 36,059 for validation.

#include <cstdlib>  // std::getenv
#include <string>
#include <string_view>

#include "core/base/file.h"
#include "core/text/byte_pairs.h"
#include "gtest/gtest.h"
#include "tools/tokenize/tokenized_text.h"

namespace lockstep {
namespace {

TEST(ShakespeareTest, HasThePublishedNumberOfTokens) {
  const char* data = std::getenv("LOCKSTEP_DATA");
  ASSERT_NE(data, nullptr)
      << "name the folder with tinyshakespeare/ and gpt2-bpe/ by LOCKSTEP_DATA";
  const auto pairs = BytePairs::Load(std::string(data) + "/gpt2-bpe");
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  const auto text = ReadFile(std::string(data) + "/tinyshakespeare/input.txt");
  ASSERT_TRUE(text.ok()) << text.status();
  const size_t boundary = TrainingBytes(*text, 0.1);
  const std::string_view all = *text;
  EXPECT_EQ(Tokenize(*pairs, all.substr(0, boundary), [](size_t) {}).size(), 301'966u);
  EXPECT_EQ(Tokenize(*pairs, all.substr(boundary), [](size_t) {}).size(), 36'059u);
}

}  // namespace
}  // namespace lockstep
