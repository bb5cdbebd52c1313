#include "core/data/cifar10.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "core/data/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kSide = 32;
constexpr int kRecord = 3073;

// The value that the made-up images have at a place: hardly any shift or mirroring of them repeats.
uint8_t PixelAt(int image, int channel, int y, int x) {
  return static_cast<uint8_t>(image * 37 + channel * 71 + y * 13 + x * 29 + y * x * 7 +
                              (x * x + y) / 3);
}

// A file of images first, ..., first + count - 1, with labels image % 10, as the format says: the
// label, then 1024 bytes of red in row order, then green, then blue.
std::string MakeFile(int first, int count) {
  std::string file;
  for (int image = first; image < first + count; ++image) {
    file.push_back(static_cast<char>(image % 10));
    for (int channel = 0; channel < 3; ++channel) {
      for (int y = 0; y < kSide; ++y) {
        for (int x = 0; x < kSide; ++x) {
          file.push_back(static_cast<char>(PixelAt(image, channel, y, x)));
        }
      }
    }
  }
  return file;
}

class Cifar10Test : public testing::Test {
 protected:
  Cifar10Test() {
    Write("data_batch_1.bin", MakeFile(0, 12));
    Write("data_batch_3.bin", MakeFile(12, 3));
    Write("test_batch.bin", MakeFile(100, 5));
  }

  void Write(const std::string& name, const std::string& contents) {
    directory_.Write("cifar-10-batches-bin/" + name, contents);
  }
  std::string Path(const std::string& name) {
    return "\"" + directory_.path() + "/cifar-10-batches-bin/" + name + "\"";
  }
  std::shared_ptr<const Cifar10> Load(const Cifar10Options& options = {}) {
    auto dataset = Cifar10::Load(directory_.path(), options);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return *dataset;
  }
  std::string LoadError() {
    const absl::Status status = Cifar10::Load(directory_.path(), {}).status();
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  }
  void Remove(const std::string& name) {
    std::filesystem::remove(directory_.path() + "/cifar-10-batches-bin/" + name);
  }

  TemporaryDirectory directory_;
};

TEST_F(Cifar10Test, LoadsTheFilesThatAreThere) {
  const auto dataset = Load();
  EXPECT_EQ(dataset->size(Split::kTrain), 15);
  EXPECT_EQ(dataset->size(Split::kValidation), 5);
  EXPECT_EQ(dataset->classes(), 10);
  EXPECT_EQ(dataset->input_shape(), Shape({32, 32, 3}));
  EXPECT_THAT(dataset->Describe(), HasSubstr("15 training and 5 test images"));
}

TEST_F(Cifar10Test, NormalisesWithTheStatisticsOfTheTrainingImages) {
  const auto dataset = Load();
  for (int channel = 0; channel < 3; ++channel) {
    double sum = 0;
    double squares = 0;
    for (int image = 0; image < 15; ++image) {
      for (int y = 0; y < kSide; ++y) {
        for (int x = 0; x < kSide; ++x) {
          const double value = PixelAt(image, channel, y, x) / 255.0;
          sum += value;
          squares += value * value;
        }
      }
    }
    const double mean = sum / (15 * 1024);
    EXPECT_NEAR(dataset->mean()[channel], mean, 1e-12);
    EXPECT_NEAR(dataset->standard_deviation()[channel],
                std::sqrt(squares / (15 * 1024) - mean * mean), 1e-12);
  }
}

TEST_F(Cifar10Test, ValidationImagesAreAsTheyAre) {
  const auto dataset = Load();
  const Filled<float> filled = FillSamples<float>(*dataset, Split::kValidation,
                                                  {{.index = 4, .augmentation = 3}, {.index = 1}});
  EXPECT_THAT(filled.targets, testing::ElementsAre(4, 1));
  for (int row = 0; row < 2; ++row) {
    const int image = row == 0 ? 104 : 101;
    for (int y = 0; y < kSide; ++y) {
      for (int x = 0; x < kSide; ++x) {
        for (int channel = 0; channel < 3; ++channel) {
          const double expected =
              (PixelAt(image, channel, y, x) / 255.0 - dataset->mean()[channel]) /
              dataset->standard_deviation()[channel];
          ASSERT_NEAR(filled.inputs[((row * kSide + y) * kSide + x) * 3 + channel], expected, 1e-5)
              << row << " " << y << " " << x << " " << channel;
        }
      }
    }
  }
}

// The bytes of a training image after padding with black, cropping `down` and `right` from its own
// place, and mirroring what was cropped.
std::vector<int> Augmented(int image, int down, int right, bool mirrored) {
  std::vector<int> bytes;
  for (int y = 0; y < kSide; ++y) {
    for (int column = 0; column < kSide; ++column) {
      const int from_y = y + down;
      const int from_x = (mirrored ? kSide - 1 - column : column) + right;
      for (int channel = 0; channel < 3; ++channel) {
        const bool inside = from_y >= 0 && from_y < kSide && from_x >= 0 && from_x < kSide;
        bytes.push_back(inside ? PixelAt(image, channel, from_y, from_x) : 0);
      }
    }
  }
  return bytes;
}

TEST_F(Cifar10Test, TrainingImagesAreShiftedAndMirroredEvenly) {
  const auto dataset = Load();
  // All ways to vary image 2 with a padding of 2.
  const auto small = Load({.crop_padding = 2});
  using Variation = std::tuple<int, int, bool>;
  std::map<std::vector<int>, Variation> variations;
  for (int down = -2; down <= 2; ++down) {
    for (int right = -2; right <= 2; ++right) {
      for (bool mirrored : {false, true}) {
        variations[Augmented(2, down, right, mirrored)] = {down, right, mirrored};
      }
    }
  }
  ASSERT_EQ(variations.size(), 50u);

  constexpr int kDraws = 2000;
  std::map<Variation, int> count;
  for (uint64_t draw = 0; draw < kDraws; ++draw) {
    const Filled<float> filled =
        FillSamples<float>(*small, Split::kTrain, {{.index = 2, .augmentation = draw}});
    EXPECT_EQ(filled.targets[0], 2);
    std::vector<int> bytes;
    for (size_t i = 0; i < filled.inputs.size(); ++i) {
      const double value =
          filled.inputs[i] * small->standard_deviation()[i % 3] + small->mean()[i % 3];
      bytes.push_back(static_cast<int>(std::lround(255 * value)));
    }
    const auto variation = variations.find(bytes);
    ASSERT_NE(variation, variations.end()) << "draw " << draw << " is no shift of the image";
    ++count[variation->second];
  }
  EXPECT_EQ(count.size(), 50u);
  double chi_square = 0;
  for (const auto& [variation, times] : count) chi_square += (times - 40.0) * (times - 40.0) / 40;
  EXPECT_LT(chi_square, 49 + 5 * 9.9);  // 49 degrees of freedom: deviation 9.9
}

TEST_F(Cifar10Test, VariationDependsOnKeyAndSeedAlone) {
  const auto dataset = Load();
  const SampleKey key = {.index = 3, .augmentation = 11};
  const auto once = FillSamples<float>(*dataset, Split::kTrain, {key});
  const auto among_others = FillSamples<float>(*Load(), Split::kTrain, {{.index = 9}, key});
  EXPECT_TRUE(std::equal(once.inputs.begin(), once.inputs.end(),
                         among_others.inputs.begin() + kSide * kSide * 3));
  bool differs = false;
  for (uint64_t seed = 1; seed < 4; ++seed) {
    differs |= FillSamples<float>(*Load({.augmentation_seed = seed}), Split::kTrain, {key}) != once;
  }
  EXPECT_TRUE(differs);
}

TEST_F(Cifar10Test, AugmentationCanBeSwitchedOff) {
  const auto dataset = Load({.crop_padding = 0, .flip = false});
  const auto first = FillSamples<float>(*dataset, Split::kTrain, {{.index = 3}});
  for (uint64_t draw = 1; draw < 20; ++draw) {
    EXPECT_EQ(FillSamples<float>(*dataset, Split::kTrain, {{.index = 3, .augmentation = draw}}),
              first);
  }
}

TEST_F(Cifar10Test, SaysWhichFileIsMissingAndWhereToGetIt) {
  Remove("test_batch.bin");
  EXPECT_THAT(LoadError(), AllOf(HasSubstr("cannot read " + Path("test_batch.bin")),
                                 HasSubstr("https://www.cs.toronto.edu/~kriz/cifar.html"),
                                 HasSubstr("LOCKSTEP_DATA"), HasSubstr("--data")));
  Remove("data_batch_1.bin");
  Remove("data_batch_3.bin");
  EXPECT_THAT(LoadError(), AllOf(HasSubstr("none of data_batch_1.bin to data_batch_5.bin is in " +
                                           Path("").substr(0, Path("").size() - 2)),
                                 HasSubstr("https://www.cs.toronto.edu/~kriz/cifar.html"),
                                 HasSubstr("LOCKSTEP_DATA"), HasSubstr("--data")));
  EXPECT_EQ(Cifar10::Load(directory_.path(), {}).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(Cifar10Test, SaysHowManyBytesATruncatedFileHas) {
  Write("data_batch_3.bin", MakeFile(12, 3).substr(0, 3 * kRecord - 1));
  EXPECT_THAT(LoadError(), AllOf(HasSubstr(Path("data_batch_3.bin")), HasSubstr("has 9218 bytes"),
                                 HasSubstr("multiple of 3073")));
  Write("data_batch_3.bin", "");
  EXPECT_THAT(LoadError(), AllOf(HasSubstr(Path("data_batch_3.bin")), HasSubstr("has 0 bytes")));
}

TEST_F(Cifar10Test, SaysWhereAWrongLabelIs) {
  std::string file = MakeFile(100, 5);
  file[3 * kRecord] = 10;
  Write("test_batch.bin", file);
  EXPECT_THAT(LoadError(), AllOf(HasSubstr(Path("test_batch.bin")),
                                 HasSubstr("the label of record 3 (byte 9219) is 10")));
}

TEST_F(Cifar10Test, RefusesAnImpossiblePadding) {
  EXPECT_EQ(Cifar10::Load(directory_.path(), {.crop_padding = -1}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep
