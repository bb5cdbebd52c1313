#include "core/data/dataset.h"

#include <cstdint>
#include <string>
#include <vector>

#include "core/data/image_dataset.h"
#include "core/data/testing.h"
#include "core/data/token_dataset.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// Image i is 2x3 with one channel, every element 10 i + augmentation.
class FakeImages final : public ImageDataset {
 public:
  std::string Describe() const override { return "fake"; }
  Shape input_shape() const override { return {2, 3, 1}; }
  int64_t classes() const override { return 5; }
  int64_t size(Split split) const override { return split == Split::kTrain ? 5 : 2; }

 protected:
  void FillImage(Split, const SampleKey& key, absl::Span<float> image,
                 absl::Span<int32_t> targets) const override {
    for (float& element : image) {
      element = static_cast<float>(10 * key.index + static_cast<int64_t>(key.augmentation));
    }
    targets[0] = static_cast<int32_t>(key.index);
  }
};

// Window i counts up from 100 i.
class FakeTokens final : public TokenDataset {
 public:
  FakeTokens() : TokenDataset(3) {}
  std::string Describe() const override { return "fake"; }
  int64_t classes() const override { return 1000; }
  int64_t size(Split) const override { return 4; }

 protected:
  absl::Status FillWindow(Split, const SampleKey& key, absl::Span<int32_t> window) const override {
    EXPECT_EQ(window.size(), 4u);
    for (size_t i = 0; i < window.size(); ++i) {
      window[i] = static_cast<int32_t>(100 * key.index + static_cast<int64_t>(i));
    }
    return absl::OkStatus();
  }
};

TEST(EmptyBatch, HasTheShapesOfItsTask) {
  CpuAllocator allocator;
  const Batch images = EmptyBatch(FakeImages(), 4, allocator, MemoryClass::kWorkspace);
  EXPECT_EQ(images.inputs.ToString(), "f32[4, 2, 3, 1]");
  EXPECT_EQ(images.targets.ToString(), "i32[4]");
  EXPECT_EQ(images.inputs.storage().memory_class(), MemoryClass::kWorkspace);
  const Batch tokens = EmptyBatch(FakeTokens(), 4, allocator, MemoryClass::kWorkspace);
  EXPECT_EQ(tokens.inputs.ToString(), "i32[4, 3]");
  EXPECT_EQ(tokens.targets.ToString(), "i32[4, 3]");
}

TEST(ImageDataset, FillsRowsByKeyAndPadsWithIgnoredOnes) {
  const FakeImages images;
  EXPECT_EQ(images.task(), Task::kClassification);
  const Filled<float> filled = FillSamples<float>(
      images, Split::kTrain, {{.index = 4, .augmentation = 7}, {}, {.index = 0}});
  EXPECT_THAT(filled.targets, ElementsAre(4, kIgnoredTarget, 0));
  EXPECT_THAT(std::vector<float>(filled.inputs.begin(), filled.inputs.begin() + 6), Each(47.0f));
  EXPECT_THAT(std::vector<float>(filled.inputs.begin() + 6, filled.inputs.end()), Each(0.0f));
}

TEST(TokenDataset, TargetsAreTheInputsOneLater) {
  const FakeTokens tokens;
  EXPECT_EQ(tokens.task(), Task::kLanguageModel);
  const Filled<int32_t> filled =
      FillSamples<int32_t>(tokens, Split::kTrain, {{.index = 2}, {}, {.index = 3}});
  EXPECT_THAT(filled.inputs, ElementsAre(200, 201, 202, 0, 0, 0, 300, 301, 302));
  EXPECT_THAT(filled.targets, ElementsAre(201, 202, 203, -1, -1, -1, 301, 302, 303));
}

TEST(DatasetDeathTest, RefusesIndicesOutsideOfTheSplit) {
  const FakeImages images;
  EXPECT_DEATH(FillSamples<float>(images, Split::kValidation, {{.index = 2}}), "");
  EXPECT_DEATH(FillSamples<int32_t>(FakeTokens(), Split::kTrain, {{.index = -2}}), "");
}

}  // namespace
}  // namespace lockstep
