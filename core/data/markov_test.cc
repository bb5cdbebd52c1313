#include "core/data/markov.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "core/data/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const Markov> Make(const MarkovOptions& options = {}) {
  auto markov = Markov::Create(options);
  EXPECT_TRUE(markov.ok()) << markov.status();
  return *markov;
}

TEST(Markov, KnowsItsFloor) {
  const auto markov = Make({.context = 32});
  EXPECT_EQ(markov->classes(), 16);
  EXPECT_EQ(markov->input_shape(), Shape({32}));
  EXPECT_EQ(markov->size(Split::kValidation), 512);
  EXPECT_EQ(*markov->entropy_rate(), markov->source().entropy_rate());
  EXPECT_EQ(*markov->loss_floor(), markov->source().LossFloor(32));
  EXPECT_GT(*markov->loss_floor(), *markov->entropy_rate());
  EXPECT_THAT(markov->Describe(), HasSubstr("entropy rate"));
}

TEST(Markov, TellsItsSizes) {
  const auto markov = Make({.context = 32, .train_samples = 2000, .validation_samples = 100});
  EXPECT_THAT(markov->Describe(), HasSubstr("; 2000 training and 100 validation samples"));
  const auto documents =
      Make({.context = 32, .document_tokens = 8, .train_samples = 2000, .validation_samples = 100});
  EXPECT_THAT(documents->Describe(), HasSubstr("packed into 32; 2000 training and 100 validation"));
}

TEST(Markov, EverySampleIsATextOfItsOwn) {
  const auto markov = Make();
  std::set<std::vector<int32_t>> texts;
  for (int64_t index = 0; index < 100; ++index) {
    // Two far indices: the training split is as large as it says.
    for (int64_t far : {index, (int64_t{1} << 40) - 1 - index}) {
      texts.insert(FillSamples<int32_t>(*markov, Split::kTrain, {{.index = far}}).inputs);
    }
    texts.insert(FillSamples<int32_t>(*markov, Split::kValidation, {{.index = index}}).inputs);
  }
  EXPECT_EQ(texts.size(), 300u);
}

// Documents lie one behind the other; the last token of each has no target.
TEST(Markov, SamplesMayBePackedFromDocuments) {
  const auto markov = Make({.context = 200, .document_tokens = 6});
  ASSERT_TRUE(markov->packs_documents());
  EXPECT_EQ(markov->loss_floor(), std::nullopt);
  CpuAllocator allocator;
  const Batch batch = EmptyBatch(*markov, 3, allocator, MemoryClass::kWorkspace);
  const std::vector<SampleKey> keys = {{.index = 4}, {.index = 9}, {.index = kNoSample}};
  ASSERT_TRUE(markov->Fill(Split::kTrain, keys, batch).ok());
  std::set<int32_t> lengths;
  for (int64_t sample = 0; sample < 2; ++sample) {
    const int32_t* documents = batch.documents.data<int32_t>() + sample * 200;
    const int32_t* targets = batch.targets.data<int32_t>() + sample * 200;
    const int32_t* inputs = batch.inputs.data<int32_t>() + sample * 200;
    int64_t real = 0;
    for (int32_t t = 0; t + 1 < 200; ++t) {
      const bool ends = documents[t + 1] != documents[t];
      EXPECT_EQ(documents[t + 1], ends ? t + 1 : documents[t]);
      EXPECT_EQ(targets[t], ends ? kIgnoredTarget : inputs[t + 1]);
      if (ends) lengths.insert(t + 1 - documents[t]);
      real += !ends;
    }
    real += targets[199] != kIgnoredTarget;
    EXPECT_EQ(*markov->CountTargets(Split::kTrain, keys[static_cast<size_t>(sample)]), real);
  }
  // 1 to 11 tokens, in some seventy documents.
  EXPECT_EQ(*lengths.begin(), 1);
  EXPECT_EQ(*lengths.rbegin(), 11);
  const int32_t* padding = batch.documents.data<int32_t>() + 2 * 200;
  EXPECT_TRUE(std::all_of(padding, padding + 200, [](int32_t first) { return first == 0; }));
}

TEST(Markov, TokensFollowTheTable) {
  const auto markov = Make({.source = {.smoothing = 1e-7}});
  const auto filled =
      FillSamples<int32_t>(*markov, Split::kTrain, {{.index = 5}, {.index = 123456789}});
  for (int row = 0; row < 2; ++row) {
    for (int i = 1; i < 64; ++i) {
      const int32_t* token = filled.inputs.data() + row * 64 + i;
      const int64_t context = token[-1] * 16 + token[0];
      // With hardly any smoothing, only likely tokens appear.
      EXPECT_GT(markov->source().Probability(context, filled.targets[row * 64 + i]), 0.01);
    }
  }
}

TEST(Markov, ASecondSourceWritesOtherTexts) {
  const auto first = Make();
  const auto second = Make({.source = {.source = 1}});
  EXPECT_NE(FillSamples<int32_t>(*first, Split::kTrain, {{.index = 0}}),
            FillSamples<int32_t>(*second, Split::kTrain, {{.index = 0}}));
}

TEST(Markov, RefusesEmptySplitsAndWindows) {
  for (const MarkovOptions& options :
       {MarkovOptions{.context = 0}, MarkovOptions{.train_samples = 0},
        MarkovOptions{.validation_samples = 0}, MarkovOptions{.source = {.order = -1}}}) {
    EXPECT_EQ(Markov::Create(options).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace lockstep
