#include "core/data/tokens.h"

#include <numeric>  // std::iota
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/data/testing.h"
#include "core/data/token_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TokensTest : public testing::Test {
 protected:
  // Token i of both splits together is 1000 + i.
  void Write(int64_t train, int64_t validation) {
    std::vector<int32_t> all(train + validation);
    std::iota(all.begin(), all.end(), 1000);
    const absl::Span<const int32_t> tokens(all);
    ASSERT_EQ(WriteTokenFile(directory_.path() + "/t.bin", 50257, tokens.first(train),
                             tokens.subspan(train)),
              absl::OkStatus());
  }
  auto Load(int64_t context) {
    return Tokens::Load(directory_.path(), {.path = "t.bin", .context = context});
  }

  TemporaryDirectory directory_;
};

TEST_F(TokensTest, WindowsShowTheTokens) {
  Write(20, 11);
  const auto tokens = Load(4);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ((*tokens)->classes(), 50257);
  EXPECT_EQ((*tokens)->size(Split::kTrain), 16);      // windows of 5 begin at 0, ..., 15
  EXPECT_EQ((*tokens)->size(Split::kValidation), 2);  // 20-24, 24-28; 28-32 would end behind 30
  const auto train = FillSamples<int32_t>(**tokens, Split::kTrain, {{.index = 0}, {.index = 15}});
  EXPECT_THAT(train.inputs, ElementsAre(1000, 1001, 1002, 1003, 1015, 1016, 1017, 1018));
  EXPECT_THAT(train.targets, ElementsAre(1001, 1002, 1003, 1004, 1016, 1017, 1018, 1019));
  const auto validation =
      FillSamples<int32_t>(**tokens, Split::kValidation, {{.index = 0}, {.index = 1}});
  EXPECT_THAT(validation.inputs, ElementsAre(1020, 1021, 1022, 1023, 1024, 1025, 1026, 1027));
  EXPECT_THAT(validation.targets, ElementsAre(1021, 1022, 1023, 1024, 1025, 1026, 1027, 1028));
}

TEST_F(TokensTest, SaysWhatIsWrongWithTheFile) {
  EXPECT_THAT(std::string(Load(4).status().message()),
              AllOf(HasSubstr("/t.bin\""), HasSubstr("//tools/tokenize"), HasSubstr("--data")));
  Write(20, 4);
  EXPECT_THAT(std::string(Load(4).status().message()),
              AllOf(HasSubstr("is too short: it has 20 tokens for training and 4 for validation"),
                    HasSubstr("a context of 4 needs 5 of each")));
  Write(20, 5);
  EXPECT_TRUE(Load(4).ok());
  EXPECT_FALSE(Load(0).ok());
  directory_.Write("t.bin", "raw");
  EXPECT_THAT(std::string(Load(4).status().message()), HasSubstr("is no file of tokens"));
}

// A token that no model knows is found when the file is opened, not hours later.
TEST_F(TokensTest, ASeparatorIsATokenOfTheVocabulary) {
  Write(20, 11);
  const auto load = [&](int64_t separator) {
    return Tokens::Load(directory_.path(), {.path = "t.bin", .context = 4, .separator = separator});
  };
  ASSERT_TRUE(load(50256).ok());
  EXPECT_TRUE((*load(50256))->packs_documents());
  EXPECT_FALSE((*load(-1))->packs_documents());
  EXPECT_THAT(std::string(load(50257).status().message()),
              HasSubstr("data.separator is token 50257"));
}

TEST_F(TokensTest, ADamagedTokenIsAnErrorAtOnce) {
  ASSERT_EQ(WriteTokenFile(directory_.path() + "/t.bin", 60000, {1, 2, 59999, 4}, {1, 2, 3}),
            absl::OkStatus());
  std::string bytes = *ReadFile(directory_.path() + "/t.bin");
  bytes[64 + 5] = static_cast<char>(0xFF);  // of the third
  directory_.Write("t.bin", bytes);
  EXPECT_THAT(std::string(Load(2).status().message()), HasSubstr("the file is damaged"));
}

}  // namespace
}  // namespace lockstep
