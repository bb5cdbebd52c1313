#include "core/data/token_stream.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(TokenStream, TakesTheSmallestType) {
  EXPECT_EQ(TokenStream(1).bytes_per_token(), 1);
  EXPECT_EQ(TokenStream(256).bytes_per_token(), 1);
  EXPECT_EQ(TokenStream(257).bytes_per_token(), 2);
  EXPECT_EQ(TokenStream(50257).bytes_per_token(), 2);
  EXPECT_EQ(TokenStream(65536).bytes_per_token(), 2);
  EXPECT_EQ(TokenStream(65537).bytes_per_token(), 4);
}

TEST(TokenStream, CopiesWindows) {
  for (int64_t vocabulary : {256, 65536, 200000}) {
    TokenStream stream(vocabulary);
    std::vector<int32_t> tokens;
    for (int i = 0; i < 100; ++i) {
      tokens.push_back(static_cast<int32_t>(vocabulary - 1 - i * i % vocabulary));
      stream.Append(tokens.back());
    }
    ASSERT_EQ(stream.size(), 100);
    for (int64_t begin : {0, 1, 42, 93}) {
      std::vector<int32_t> window(7);
      stream.CopyWindow(begin, absl::MakeSpan(window));
      EXPECT_EQ(window, std::vector<int32_t>(tokens.begin() + begin, tokens.begin() + begin + 7));
    }
  }
}

TEST(TokenStreamDeathTest, RefusesWindowsBeyondTheEnd) {
  TokenStream stream(10);
  stream.Append(3);
  std::vector<int32_t> window(2);
  EXPECT_DEATH(stream.CopyWindow(0, absl::MakeSpan(window)), "");
}

}  // namespace
}  // namespace lockstep
