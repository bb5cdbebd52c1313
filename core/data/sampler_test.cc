#include "core/data/sampler.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/data/testing.h"
#include "core/data/token_dataset.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

// A data set of some sizes; nobody asks it for samples here.
class Sizes final : public TokenDataset {
 public:
  Sizes(int64_t train, int64_t validation)
      : TokenDataset(1), train_(train), validation_(validation) {}
  std::string Describe() const override { return "sizes"; }
  int64_t classes() const override { return 2; }
  int64_t size(Split split) const override { return split == Split::kTrain ? train_ : validation_; }

 protected:
  absl::Status FillWindow(Split, const SampleKey&, absl::Span<int32_t>) const override {
    return absl::OkStatus();
  }

 private:
  int64_t train_;
  int64_t validation_;
};

Sampler Make(int64_t train, const SamplerOptions& options) {
  absl::StatusOr<Sampler> sampler = Sampler::Create(Sizes(train, 10), options);
  EXPECT_TRUE(sampler.ok()) << sampler.status();
  return *std::move(sampler);
}

// The keys of a whole step, micro-batch by micro-batch.
std::vector<SampleKey> StepKeys(const Sampler& sampler, int64_t step) {
  std::vector<SampleKey> keys;
  for (int64_t i = 0; i < sampler.micro_batches_per_step(); ++i) {
    const std::vector<SampleKey> part = sampler.TrainKeys(step, i);
    EXPECT_EQ(static_cast<int64_t>(part.size()), sampler.samples_of(i));
    keys.insert(keys.end(), part.begin(), part.end());
  }
  return keys;
}

TEST(Sampler, ChoosesTheUsualOrder) {
  EXPECT_EQ(UsualOrder(Task::kClassification), SampleOrder::kEpochs);
  EXPECT_EQ(UsualOrder(Task::kLanguageModel), SampleOrder::kDraws);
}

// Contract 2: which rank asks, and into what the step is cut, changes nothing.
TEST(Sampler, TheCutDoesNotChangeTheSamples) {
  for (SampleOrder order : {SampleOrder::kEpochs, SampleOrder::kDraws}) {
    const Sampler whole = Make(100, {.seed = 5, .global_batch = 12, .order = order});
    for (const auto& [shards, micro_batches] :
         {std::pair<int64_t, int64_t>{1, 3}, {2, 1}, {4, 3}, {2, 6}, {1, 5}, {2, 4}, {3, 100}}) {
      const Sampler cut = Make(100, {.seed = 5,
                                     .global_batch = 12,
                                     .shards = shards,
                                     .micro_batches = micro_batches,
                                     .order = order});
      for (int64_t step : {0, 7, 8, 1000}) EXPECT_EQ(StepKeys(cut, step), StepKeys(whole, step));
    }
  }
}

TEST(Sampler, MicroBatchesOfAShardDifferByOneSampleAtMost) {
  const auto sizes = [](const SamplerOptions& options) {
    const Sampler sampler = Make(100, options);
    std::vector<int64_t> samples;
    for (int64_t i = 0; i < sampler.micro_batches_per_step(); ++i) {
      samples.push_back(sampler.samples_of(i));
    }
    return samples;
  };
  EXPECT_THAT(sizes({.global_batch = 10, .shards = 2, .micro_batches = 3}),
              testing::ElementsAre(2, 2, 1, 2, 2, 1));
  EXPECT_THAT(sizes({.global_batch = 7, .micro_batches = 4}), testing::ElementsAre(2, 2, 2, 1));
  // Fewer samples than micro-batches: one each.
  EXPECT_THAT(sizes({.global_batch = 4, .shards = 2, .micro_batches = 3}),
              testing::ElementsAre(1, 1, 1, 1));
}

TEST(Sampler, AnEpochVisitsEachSampleAtMostOnceAndDropsTheRest) {
  const Sampler sampler = Make(50, {.seed = 1, .global_batch = 12, .shards = 2});
  ASSERT_EQ(sampler.steps_per_epoch(), 4);
  std::vector<std::set<int64_t>> epochs;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<int64_t> seen;
    for (int64_t step = 4 * epoch; step < 4 * epoch + 4; ++step) {
      for (const SampleKey& key : StepKeys(sampler, step)) {
        EXPECT_GE(key.index, 0);
        EXPECT_LT(key.index, 50);
        EXPECT_TRUE(seen.insert(key.index).second) << "twice in an epoch: " << key.index;
      }
    }
    EXPECT_EQ(seen.size(), 48u);  // two are left out, other ones in each epoch
    epochs.push_back(seen);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(StepKeys(sampler, 0), StepKeys(sampler, 4));
}

TEST(Sampler, EachDrawOfARunHasItsOwnAugmentation) {
  const Sampler sampler = Make(50, {.seed = 1, .global_batch = 10, .shards = 5});
  std::set<uint64_t> counters;
  for (int64_t step = 0; step < 20; ++step) {
    for (const SampleKey& key : StepKeys(sampler, step)) counters.insert(key.augmentation);
  }
  EXPECT_EQ(counters.size(), 200u);
}

TEST(Sampler, DrawsAreUniformAndIndependentOfTheSeedOfOthers) {
  constexpr int64_t kSize = 40;
  const Sampler sampler =
      Make(kSize, {.seed = 3, .global_batch = 100, .order = SampleOrder::kDraws});
  EXPECT_EQ(sampler.steps_per_epoch(), std::nullopt);
  std::vector<int> count(kSize);
  for (int64_t step = 0; step < 400; ++step) {
    for (const SampleKey& key : StepKeys(sampler, step)) ++count.at(key.index);
  }
  double chi_square = 0;
  for (int times : count) chi_square += (times - 1000.0) * (times - 1000.0) / 1000;
  EXPECT_LT(chi_square, 39 + 5 * 8.8);  // 39 degrees of freedom: deviation 8.8
  const Sampler other = Make(kSize, {.seed = 4, .global_batch = 100, .order = SampleOrder::kDraws});
  EXPECT_NE(StepKeys(sampler, 0), StepKeys(other, 0));
}

TEST(Sampler, DrawsFromHugeSplits) {
  const int64_t size = int64_t{1} << 40;
  const Sampler sampler =
      Make(size, {.seed = 3, .global_batch = 1000, .order = SampleOrder::kDraws});
  int64_t largest = 0;
  for (const SampleKey& key : StepKeys(sampler, 0)) {
    ASSERT_GE(key.index, 0);
    ASSERT_LT(key.index, size);
    largest = std::max(largest, key.index);
  }
  EXPECT_GT(largest, size / 100 * 98);
}

TEST(Sampler, ValidationGoesInOrderAndFillsUpTheLastBatch) {
  const Sampler sampler = Make(10, {.global_batch = 2});  // 10 samples for validation
  EXPECT_EQ(sampler.ValidationBatches(4), 3);
  EXPECT_EQ(sampler.ValidationBatches(5), 2);
  EXPECT_EQ(sampler.ValidationBatches(4, 2), 2);
  EXPECT_EQ(sampler.ValidationBatches(4, 100), 3);
  std::vector<int64_t> indices;
  for (int64_t batch = 0; batch < 3; ++batch) {
    for (const SampleKey& key : sampler.ValidationKeys(batch, 4)) indices.push_back(key.index);
  }
  EXPECT_THAT(indices, testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, kNoSample, kNoSample));
}

TEST(Sampler, RefusesWhatDoesNotFit) {
  const auto error = [](const SamplerOptions& options) {
    const absl::Status status = Sampler::Create(Sizes(10, 10), options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(error({.global_batch = 10, .shards = 3, .micro_batches = 2}),
            "a global batch of 10 samples does not divide into 3 shards of one size; it must be a "
            "multiple of 3, such as 9 or 12");
  EXPECT_THAT(error({.global_batch = 2, .shards = 4}), HasSubstr("a multiple of 4, such as 4"));
  EXPECT_THAT(error({.global_batch = 11}),
              HasSubstr("the training split has 10 samples, fewer than one global batch of 11"));
  EXPECT_THAT(error({.global_batch = 0}), HasSubstr("must each be at least 1"));
  // Draws may repeat samples, so a small split is no obstacle.
  EXPECT_TRUE(
      Sampler::Create(Sizes(10, 10), {.global_batch = 11, .order = SampleOrder::kDraws}).ok());
}

}  // namespace
}  // namespace lockstep
