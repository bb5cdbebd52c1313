// The program as a user starts it.

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/subprocess.h"
#include "core/data/token_file.h"
#include "core/text/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TokenizeTest : public testing::Test {
 protected:
  TokenizeTest() : folder_(testing::TempDir() + "/tokenize_test") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    Write("encoder.json", TokensJson({"ab"}));
    Write("vocab.bpe", "a b\n");
  }

  void Write(const std::string& name, const std::string& contents) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << contents;
  }

  ProcessResult Run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "tools/tokenize/tokenize");
    auto result = RunProcess({.arguments = arguments});
    EXPECT_TRUE(result.ok()) << result.status();
    return *std::move(result);
  }
  std::string Flag(const std::string& name, const std::string& file) const {
    return absl::StrCat("--", name, "=", folder_, "/", file);
  }
  std::vector<std::string> Usual(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> flags = {"--bpe=" + folder_, Flag("input", "text"),
                                      Flag("output", "tokens")};
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  }

  std::string folder_;
};

TEST_F(TokenizeTest, MakesAFileOfTokens) {
  Write("text", "ab cab ab");  // nine characters: eight and one
  const ProcessResult result = Run(Usual());
  EXPECT_TRUE(result.ok()) << result.err;
  EXPECT_THAT(result.out, HasSubstr("/tokens: 6 training and 1 validation tokens, 1.29 bytes"));
  EXPECT_EQ(result.err, "");
  const auto file = TokenFile::Open(folder_ + "/tokens");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->vocabulary(), 257);
  EXPECT_EQ(file->train_tokens(), 6);
  std::vector<int32_t> tokens(static_cast<size_t>(file->tokens()));
  ASSERT_EQ(file->Copy(0, absl::MakeSpan(tokens)), absl::OkStatus());
  // The last "ab" is cut in two.
  EXPECT_THAT(tokens, ElementsAre(256, ' ', 'c', 256, ' ', 'a', 'b'));
  EXPECT_TRUE(Run(Usual({"--validation=0.3"})).ok());
  EXPECT_EQ(TokenFile::Open(folder_ + "/tokens")->train_tokens(), 4);
}

TEST_F(TokenizeTest, SaysWhatIsWrong) {
  const auto problem = [this](const std::vector<std::string>& arguments) {
    const ProcessResult result = Run(arguments);
    EXPECT_EQ(result.exit_code, 1);
    return result.err;
  };
  EXPECT_THAT(problem(Usual()), HasSubstr("/tokenize_test/text\": No such file"));
  Write("text", "");
  EXPECT_THAT(problem(Usual()), HasSubstr("/text\" is empty"));
  Write("text", "some");
  EXPECT_THAT(problem({Flag("input", "text")}), HasSubstr("--bpe is missing"));
  EXPECT_THAT(problem(Usual({"--validation=1"})), HasSubstr("--validation is 1"));
  EXPECT_THAT(problem(Usual({Flag("output", "none/tokens")})), HasSubstr("/none"));
  EXPECT_THAT(problem(Usual({Flag("output", "text")})), HasSubstr("is read and cannot be written"));
  EXPECT_THAT(problem(Usual({Flag("output", "vocab.bpe")})), HasSubstr("is read and cannot be"));
  Write("thesis", "years of work");
  EXPECT_THAT(problem(Usual({Flag("output", "thesis")})), HasSubstr("is not a file of tokens"));
  EXPECT_EQ(*ReadFile(folder_ + "/thesis"), "years of work");
  EXPECT_TRUE(Run(Usual({Flag("output", "thesis"), "--overwrite"})).ok());
  EXPECT_THAT(problem(Usual({"--validation=nan"})), HasSubstr("give a finite number"));
  EXPECT_THAT(problem(Usual({"more"})), HasSubstr("'more' belongs to no option"));
  Write("vocab.bpe", "a c\n");
  EXPECT_THAT(problem(Usual()), HasSubstr("/vocab.bpe\": line 1"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/tokens"));
}

}  // namespace
}  // namespace lockstep
