#include "core/data/token_file.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/data/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The sum that core/base/checksum.h describes.
uint64_t Checksum(const std::vector<uint64_t>& tokens) {
  uint64_t sum = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15 + tokens[i];
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    sum += x ^ (x >> 31);
  }
  return sum;
}
uint64_t ChecksumOfBytes(const std::string& bytes) {
  std::vector<uint64_t> elements;
  for (const char byte : bytes) elements.push_back(static_cast<unsigned char>(byte));
  return Checksum(elements);
}

// The format as its description has it.
std::string Number(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i, value >>= 8) text.push_back(static_cast<char>(value & 0xFF));
  return text;
}
// Bytes 0 to 47.
std::string HeaderBegin(uint64_t version, uint64_t token_bytes, uint64_t vocabulary,
                        uint64_t tokens, uint64_t train, uint64_t checksum) {
  return "lstokens" + Number(version, 4) + Number(token_bytes, 4) + Number(vocabulary, 8) +
         Number(tokens, 8) + Number(train, 8) + Number(checksum, 8);
}
std::string Header(uint64_t token_bytes, uint64_t vocabulary, uint64_t tokens, uint64_t train,
                   uint64_t checksum) {
  const std::string begin = HeaderBegin(3, token_bytes, vocabulary, tokens, train, checksum);
  return begin + Number(ChecksumOfBytes(begin), 8) + std::string(8, '\0');
}
// The header of version 1, which has no checksums.
std::string Header1(uint64_t token_bytes, uint64_t vocabulary, uint64_t tokens, uint64_t train) {
  return HeaderBegin(1, token_bytes, vocabulary, tokens, train, 0) + std::string(16, '\0');
}
// The header of version 2, which has a checksum of the tokens alone.
std::string Header2(uint64_t token_bytes, uint64_t vocabulary, uint64_t tokens, uint64_t train,
                    uint64_t checksum) {
  return HeaderBegin(2, token_bytes, vocabulary, tokens, train, checksum) + std::string(16, '\0');
}

class TokenFileTest : public testing::Test {
 protected:
  absl::StatusOr<TokenFile> Open(const std::string& contents) {
    directory_.Write("file", contents);
    return TokenFile::Open(path());
  }
  std::string Problem(const std::string& contents) {
    const absl::Status status = Open(contents).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    const std::string message(status.message());
    const std::string prefix = "\"" + path() + "\" is no file of tokens: ";
    const std::string suffix = "; //tools/tokenize makes one from text";
    EXPECT_TRUE(message.starts_with(prefix) && message.ends_with(suffix)) << message;
    return message.substr(prefix.size(), message.size() - prefix.size() - suffix.size());
  }
  std::string path() const { return directory_.path() + "/file"; }

  TemporaryDirectory directory_;
};

TEST_F(TokenFileTest, WritesWhatItsDescriptionSays) {
  ASSERT_EQ(WriteTokenFile(path(), 50257, {50256, 0, 258}, {7}), absl::OkStatus());
  EXPECT_EQ(*ReadFile(path()), Header(2, 50257, 4, 3, Checksum({50256, 0, 258, 7})) +
                                   Number(50256, 2) + Number(0, 2) + Number(258, 2) + Number(7, 2));
  ASSERT_EQ(WriteTokenFile(path(), 65537, {}, {65536, 1}), absl::OkStatus());
  EXPECT_EQ(*ReadFile(path()),
            Header(4, 65537, 2, 0, Checksum({65536, 1})) + Number(65536, 4) + Number(1, 4));
}

TEST_F(TokenFileTest, Reads) {
  for (const int64_t vocabulary : {1000, 100000}) {
    std::vector<int32_t> train, validation;
    for (int32_t i = 0; i < 300'000; ++i) {
      (i < 200'000 ? train : validation).push_back(static_cast<int32_t>(i * 7919LL % vocabulary));
    }
    ASSERT_EQ(WriteTokenFile(path(), vocabulary, train, validation), absl::OkStatus());
    const auto file = TokenFile::Open(path());
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->path(), path());
    EXPECT_EQ(file->vocabulary(), vocabulary);
    EXPECT_EQ(file->tokens(), 300'000);
    EXPECT_EQ(file->train_tokens(), 200'000);
    std::vector<int32_t> all(300'000), some(3);
    ASSERT_EQ(file->Copy(0, absl::MakeSpan(all)), absl::OkStatus());
    EXPECT_TRUE(std::equal(train.begin(), train.end(), all.begin()));
    EXPECT_TRUE(std::equal(validation.begin(), validation.end(), all.begin() + 200'000));
    ASSERT_EQ(file->Copy(199'999, absl::MakeSpan(some)), absl::OkStatus());
    EXPECT_THAT(some, ElementsAre(train.back(), validation[0], validation[1]));
  }
}

TEST_F(TokenFileTest, RefusesOtherFiles) {
  const std::string good = Header1(2, 300, 2, 1) + Number(5, 2) + Number(299, 2);
  ASSERT_TRUE(Open(good).ok());
  EXPECT_EQ(Problem(""), "it has only 0 bytes");
  EXPECT_EQ(Problem(good.substr(0, 63)), "it has only 63 bytes");
  EXPECT_EQ(Problem(std::string(200, '\0')), "it does not begin with \"lstokens\"");
  const auto changed = [&good](size_t at, const std::string& bytes) {
    std::string text = good;
    return text.replace(at, bytes.size(), bytes);
  };
  EXPECT_EQ(Problem(changed(8, Number(0, 4))), "its version is 0, but only 1 to 3 are known");
  EXPECT_EQ(Problem(changed(8, Number(4, 4))), "its version is 4, but only 1 to 3 are known");
  EXPECT_EQ(Problem(changed(12, Number(4, 4))),
            "its tokens have 4 bytes, but a vocabulary of 300 takes 2");
  EXPECT_EQ(Problem(changed(16, Number(0, 8))), "its vocabulary has 0 tokens, not 1 to 2^31");
  EXPECT_EQ(Problem(changed(16, Number(uint64_t{1} << 40, 8))),
            "its vocabulary has 1099511627776 tokens, not 1 to 2^31");
  const std::string length = "bytes behind its header: it was cut, or something was added";
  EXPECT_EQ(Problem(good.substr(0, 67)), "its 2 tokens of 2 bytes do not fill the 3 " + length);
  EXPECT_EQ(Problem(good + "x"), "its 2 tokens of 2 bytes do not fill the 5 " + length);
  // 2^63 + 2 times two bytes is four in 64 bits.
  EXPECT_EQ(Problem(changed(24, Number((uint64_t{1} << 63) + 2, 8))),
            "its 9223372036854775810 tokens of 2 bytes do not fill the 4 " + length);
  EXPECT_EQ(Problem(changed(32, Number(3, 8))), "of its 2 tokens 3 are for training");
  EXPECT_EQ(Problem(changed(40, Number(1, 1))), "bytes 40 to 47 are not zero");
  EXPECT_EQ(Problem(changed(48, Number(1, 1))), "bytes 48 to 55 are not zero");
  EXPECT_EQ(Problem(changed(56, Number(1, 1))), "bytes 56 to 63 are not zero");
  EXPECT_EQ(TokenFile::Open(directory_.path() + "/none").status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(TokenFileTest, SeesEveryFlippedBit) {
  ASSERT_EQ(WriteTokenFile(path(), 300, {5, 299, 17}, {260}), absl::OkStatus());
  const std::string good = *ReadFile(path());
  ASSERT_TRUE(Open(good).ok());
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string flipped = good;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
    const absl::Status status = Open(flipped).status();
    EXPECT_FALSE(status.ok()) << bit;
    // The checksums cover all but zeros; which of them a file has, its first 12 bytes say. A flip
    // may lift a token to 300 or above: that is damage, too.
    if (bit / 8 < 12 || (bit / 8 >= 56 && bit / 8 < 64)) continue;
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << bit << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("differs: the file is damaged")) << bit;
  }
  const auto damage = [&](size_t at, uint64_t value) {
    const absl::Status status =
        Open(good.substr(0, at) + Number(value, 1) + good.substr(at + 1)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(damage(64, 6), HasSubstr("/file\": its tokens are not those that were written, for "
                                       "their checksum differs: the file is damaged"));
  // Two of four tokens for training where there were three, and a larger vocabulary.
  EXPECT_THAT(damage(32, 2), HasSubstr("/file\": its header is not the one that was written, for "
                                       "its checksum differs: the file is damaged"));
  EXPECT_THAT(damage(17, 2), HasSubstr("its header is not the one"));
}

// Files that earlier versions of the program have made.
TEST_F(TokenFileTest, ReadsEarlierVersions) {
  const std::string tokens = Number(5, 2) + Number(299, 2) + Number(17, 2);
  for (const std::string& header :
       {Header1(2, 300, 3, 2), Header2(2, 300, 3, 2, Checksum({5, 299, 17}))}) {
    const auto file = Open(header + tokens);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->vocabulary(), 300);
    EXPECT_EQ(file->train_tokens(), 2);
    // A run that was begun with an earlier version's file goes on with one that is made anew.
    EXPECT_EQ(file->checksum(), Checksum({5, 299, 17}));
    std::vector<int32_t> read(3);
    ASSERT_EQ(file->Copy(0, absl::MakeSpan(read)), absl::OkStatus());
    EXPECT_THAT(read, ElementsAre(5, 299, 17));
  }
  EXPECT_THAT(
      std::string(Open(Header2(2, 300, 3, 2, Checksum({5, 299, 18})) + tokens).status().message()),
      HasSubstr("its tokens are not those that were written"));
}

TEST_F(TokenFileTest, RefusesTokensOutsideOfTheVocabulary) {
  EXPECT_THAT(
      std::string(Open(Header1(2, 300, 2, 1) + Number(5, 2) + Number(300, 2)).status().message()),
      HasSubstr("/file\": token 1 is 300, outside of the vocabulary of 300"));
  EXPECT_THAT(
      std::string(
          Open(Header1(4, 70000, 2, 1) + Number(0xFFFFFFFF, 4) + Number(5, 4)).status().message()),
      HasSubstr("token 0 is 4294967295, outside"));
  // Written so, by another program.
  const absl::Status status =
      Open(Header(2, 300, 2, 1, Checksum({5, 300})) + Number(5, 2) + Number(300, 2)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("token 1 is 300, outside"));
}

// Whatever stands in it, a file is refused or can be read to its end.
TEST_F(TokenFileTest, MutatedFilesAreRefusedOrReadable) {
  std::string good = Header1(2, 60000, 9, 4);
  for (int i = 0; i < 9; ++i) good += Number(i * 6000, 2);
  std::mt19937 random(1);
  int read = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string mutated = good;
    mutated[random() % mutated.size()] = static_cast<char>(random());
    if (random() % 4 == 0) mutated.resize(random() % 100);
    const auto file = Open(mutated);
    if (!file.ok()) continue;
    ++read;
    std::vector<int32_t> tokens(static_cast<size_t>(file->tokens()));
    const absl::Status status = file->Copy(0, absl::MakeSpan(tokens));
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
  }
  EXPECT_GT(read, 10);
}

TEST_F(TokenFileTest, BrokenPromisesEndTheProgram) {
  EXPECT_DEATH((void)WriteTokenFile(path(), 10, {10}, {}), "10");
  const auto file = Open(Header1(2, 300, 1, 1) + Number(5, 2));
  std::vector<int32_t> tokens(2);
  EXPECT_DEATH((void)file->Copy(0, absl::MakeSpan(tokens)), "");
}

}  // namespace
}  // namespace lockstep
