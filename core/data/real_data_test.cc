// The data sets on the user's real files where LOCKSTEP_DATA names their directory, or else, with
// the same checks, on small files of the same formats that the test makes.

#include <cstdint>
#include <cstdlib>  // std::abs, std::getenv
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/data/cifar10.h"
#include "core/data/testing.h"
#include "core/data/text.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

// What is to be found in the files.
struct Facts {
  std::string origin;
  int64_t images_per_file;
  int64_t class_tolerance;  // a class's share of a training file, from a tenth of it
  double mean_tolerance;    // of a channel, from the published means of all training images
  int64_t characters;
  int64_t train_characters;
  int64_t validation_characters;
  int64_t distinct;
  std::string first_line;
};

class RealDataTest : public testing::Test {
 protected:
  RealDataTest() {
    const char* directory = std::getenv("LOCKSTEP_DATA");
    if (directory != nullptr && *directory != '\0') {
      directory_ = directory;
      facts_ = {.origin = "real files in " + directory_,
                .images_per_file = 10000,
                .class_tolerance = 70,
                .mean_tolerance = 0.005,
                .characters = 1115394,
                .train_characters = 1003854,
                .validation_characters = 111540,
                .distinct = 65,
                .first_line = "First Citizen:\n"};
    } else {
      temporary_.emplace();
      directory_ = temporary_->path();
      WriteSmallFiles();
      facts_ = {.origin = "small files made by this test (LOCKSTEP_DATA is not set)",
                .images_per_file = 100,
                .class_tolerance = 0,
                .mean_tolerance = 0.005,
                .characters = 5004,
                .train_characters = 4503,
                .validation_characters = 501,
                .distinct = 26,
                .first_line = "abcdefghijklmno"};
    }
    std::cout << "Checked: " << facts_.origin << std::endl;
  }

  void WriteSmallFiles() {
    // The bytes of each channel average to the published means.
    constexpr int kMeans[3] = {125, 123, 114};
    std::string images;
    for (int image = 0; image < 100; ++image) {
      images.push_back(static_cast<char>(image % 10));
      for (int i = 0; i < 3072; ++i) {
        const int swing = (image + i / 2) % 100;
        images.push_back(static_cast<char>(kMeans[i / 1024] + (i % 2 == 0 ? swing : -swing)));
      }
    }
    temporary_->Write("cifar-10-batches-bin/data_batch_1.bin", images);
    temporary_->Write("cifar-10-batches-bin/test_batch.bin", images);
    std::string text;
    for (int i = 0; i < 5004; ++i) text.push_back(static_cast<char>('a' + i % 26));
    temporary_->Write("tinyshakespeare/input.txt", text);
  }

  std::optional<TemporaryDirectory> temporary_;
  std::string directory_;
  Facts facts_;
};

TEST_F(RealDataTest, Cifar10) {
  const auto dataset = Cifar10::Load(directory_, {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const Cifar10& cifar10 = **dataset;
  std::cout << cifar10.Describe() << std::endl;

  // Any of the five training files may be there.
  const int64_t train = cifar10.size(Split::kTrain);
  EXPECT_GE(train, facts_.images_per_file);
  EXPECT_EQ(train % facts_.images_per_file, 0);
  EXPECT_LE(train, 5 * facts_.images_per_file);
  ASSERT_EQ(cifar10.size(Split::kValidation), facts_.images_per_file);
  for (Split split : {Split::kTrain, Split::kValidation}) {
    std::vector<int64_t> count(10);
    const int64_t images = cifar10.size(split);
    CpuAllocator allocator;
    const Batch batch = EmptyBatch(cifar10, 1, allocator, MemoryClass::kActivations);
    for (int64_t index = 0; index < images; ++index) {
      const SampleKey key = {.index = index};
      ASSERT_EQ(cifar10.Fill(split, absl::MakeConstSpan(&key, 1), batch), absl::OkStatus());
      ++count.at(batch.targets.data<int32_t>()[0]);
    }
    for (int64_t of_class : count) {
      // The test file has exactly a tenth of each class, the training files about as many.
      const int64_t tenth = images / 10;
      const int64_t files = images / facts_.images_per_file;
      EXPECT_LE(std::abs(of_class - tenth),
                split == Split::kTrain ? facts_.class_tolerance * files : 0);
    }
  }

  // The means of all 50,000 training images, as everybody's recipes have them.
  constexpr double kPublishedMeans[3] = {0.4914, 0.4822, 0.4465};
  for (int channel = 0; channel < 3; ++channel) {
    EXPECT_NEAR(cifar10.mean()[channel], kPublishedMeans[channel], facts_.mean_tolerance);
    EXPECT_GT(cifar10.standard_deviation()[channel], 0.2);
    EXPECT_LT(cifar10.standard_deviation()[channel], 0.3);
  }
}

TEST_F(RealDataTest, NormalisedTrainingImagesHaveMeanZeroAndVarianceOne) {
  const auto cifar10 = Cifar10::Load(directory_, {.crop_padding = 0, .flip = false});
  ASSERT_TRUE(cifar10.ok()) << cifar10.status();
  CpuAllocator allocator;
  const Batch batch = EmptyBatch(**cifar10, 1, allocator, MemoryClass::kActivations);
  std::vector<double> sum(3), squares(3);
  const int64_t images = (*cifar10)->size(Split::kTrain);
  for (int64_t index = 0; index < images; ++index) {
    const SampleKey key = {.index = index};
    ASSERT_EQ((*cifar10)->Fill(Split::kTrain, absl::MakeConstSpan(&key, 1), batch),
              absl::OkStatus());
    const absl::Span<float> image = batch.inputs.span<float>();
    for (size_t i = 0; i < image.size(); ++i) {
      sum[i % 3] += image[i];
      squares[i % 3] += static_cast<double>(image[i]) * image[i];
    }
  }
  const double values = static_cast<double>(images) * 1024;
  for (int channel = 0; channel < 3; ++channel) {
    EXPECT_NEAR(sum[channel] / values, 0, 1e-5);
    EXPECT_NEAR(squares[channel] / values, 1, 1e-5);
  }
}

TEST_F(RealDataTest, Text) {
  const auto dataset = Text::Load(directory_, {.context = 64});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const Text& text = **dataset;
  std::cout << text.Describe() << std::endl;
  EXPECT_EQ(text.tokens(Split::kTrain) + text.tokens(Split::kValidation), facts_.characters);
  EXPECT_EQ(text.tokens(Split::kTrain), facts_.train_characters);
  EXPECT_EQ(text.tokens(Split::kValidation), facts_.validation_characters);
  EXPECT_EQ(text.classes(), facts_.distinct);
  const auto window = FillSamples<int32_t>(text, Split::kTrain, {{.index = 0}});
  EXPECT_EQ(text.vocabulary().Decode(window.inputs).substr(0, facts_.first_line.size()),
            facts_.first_line);
  // The whole text's characters make the same vocabulary.
  const auto all =
      Text::Load(directory_, {.context = 64, .vocabulary = TextOptions::Vocabulary::kAll});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ((*all)->vocabulary().characters(), text.vocabulary().characters());
}

}  // namespace
}  // namespace lockstep
