#include "core/data/copies.h"

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/data/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::vector<int32_t> Inputs(const Copies& copies, Split split, int64_t index) {
  CpuAllocator allocator;
  const Batch batch = EmptyBatch(copies, 1, allocator, MemoryClass::kWorkspace);
  const SampleKey key = {.index = index};
  EXPECT_TRUE(copies.Fill(split, {&key, 1}, batch).ok());
  const auto tokens = batch.inputs.span<int32_t>();
  return {tokens.begin(), tokens.end()};
}

const CopiesOptions kSmall = {.slots = 3, .values = 4, .repeats = 1, .distance = 8, .context = 16};

TEST(CopiesTest, TellsItsSizes) {
  CopiesOptions options = kSmall;
  options.train_samples = 300;
  options.validation_samples = 20;
  const auto copies = Copies::Create(options);
  ASSERT_TRUE(copies.ok()) << copies.status();
  EXPECT_THAT((*copies)->Describe(), HasSubstr("; 300 training and 20 validation samples"));
}

TEST(CopiesTest, APassageComesAgain) {
  const auto copies = Copies::Create(kSmall);
  ASSERT_TRUE(copies.ok()) << copies.status();
  EXPECT_EQ((*copies)->classes(), 13);
  std::map<int32_t, int> counts;
  for (int64_t index = 0; index < 400; ++index) {
    const std::vector<int32_t> text = Inputs(**copies, Split::kTrain, index);
    for (int32_t t = 0; t < 16; ++t) {
      const int32_t slot = t % 8;
      if (slot >= 3) {
        EXPECT_EQ(text[t], 0);
        continue;
      }
      EXPECT_EQ((text[t] - 1) / 4, slot);
      EXPECT_EQ(text[t], text[slot]);
    }
    ++counts[text[1]];
  }
  ASSERT_EQ(counts.size(), 4u);
  // Four standard deviations of 400 draws of one in four.
  for (const auto& [token, count] : counts) EXPECT_NEAR(count, 100, 4 * std::sqrt(75.0)) << token;
  EXPECT_NE(Inputs(**copies, Split::kTrain, 0), Inputs(**copies, Split::kValidation, 0));
}

// Four windows are one text.
TEST(CopiesTest, AShortContextReadsTheSameTexts) {
  CopiesOptions options = kSmall;
  options.context = 4;
  const auto windows = Copies::Create(options), whole = Copies::Create(kSmall);
  std::vector<int32_t> text;
  for (int64_t window = 0; window < 4; ++window) {
    for (const int32_t token : Inputs(**windows, Split::kTrain, 20 + window)) text.push_back(token);
  }
  EXPECT_EQ(text, Inputs(**whole, Split::kTrain, 5));
}

// Tokens 1, 2, 8, 9, 10 and 16 of the 16 targets are of passages. The window of 16 has copies of
// the last four before them; windows of 8 or 4 none but token 8's and token 16's for windows of 8,
// whose first token is the copy.
TEST(CopiesTest, KnowsTheLowestLoss) {
  CopiesOptions options = kSmall;
  EXPECT_NEAR(*(*Copies::Create(options))->loss_floor(), 2 * std::log(4.0) / 16, 1e-12);
  options.context = 8;
  EXPECT_NEAR(*(*Copies::Create(options))->loss_floor(), 4 * std::log(4.0) / 16, 1e-12);
  options.context = 4;
  EXPECT_NEAR(*(*Copies::Create(options))->loss_floor(), 6 * std::log(4.0) / 16, 1e-12);
}

// Three runs of two tokens: the first token of a run is to be guessed, the second is known.
TEST(CopiesTest, RunsRepeatTheirToken) {
  CopiesOptions options = kSmall;
  options.repeats = 2;
  const auto copies = Copies::Create(options);
  ASSERT_TRUE(copies.ok()) << copies.status();
  const std::vector<int32_t> text = Inputs(**copies, Split::kTrain, 7);
  for (int32_t t = 0; t < 6; ++t) {
    EXPECT_EQ((text[t] - 1) / 4, t / 2);
    EXPECT_EQ(text[t], text[t / 2 * 2]);
    EXPECT_EQ(text[8 + t], text[t]);
  }
  EXPECT_EQ(text[6] + text[7] + text[14] + text[15], 0);
  EXPECT_NEAR(*(*copies)->loss_floor(), 2 * std::log(4.0) / 16, 1e-12);
}

TEST(CopiesTest, SaysWhatIsWrong) {
  const auto problem = [](CopiesOptions options) {
    return std::string(Copies::Create(options).status().message());
  };
  EXPECT_THAT(problem({.slots = 8, .repeats = 1, .distance = 8, .context = 16}),
              HasSubstr("data.slots is 8"));
  EXPECT_THAT(problem({.slots = 3, .values = 1, .repeats = 1, .distance = 8, .context = 16}),
              HasSubstr("data.values 1"));
  EXPECT_THAT(problem({.slots = 3, .repeats = 1, .distance = 8, .context = 5}),
              HasSubstr("data.context is 5, but must divide"));
  EXPECT_THAT(problem({.validation_samples = 0}), HasSubstr("at least one sample"));
}

}  // namespace
}  // namespace lockstep
