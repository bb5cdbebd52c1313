#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/philox.h"
#include "core/data/image_dataset.h"

namespace lockstep {

struct Cifar10Options {
  // Under the data directory, as the archive unpacks.
  std::string directory = "cifar-10-batches-bin";

  // Training images are shifted by up to so many pixels in each direction; 0: not at all.
  int crop_padding = 4;
  // Half of the training images are mirrored.
  bool flip = true;
  uint64_t augmentation_seed = 0;
};

// CIFAR-10 in its binary version (Krizhevsky, "Learning Multiple Layers of Features from Tiny
// Images", 2009): 32x32 RGB images in ten classes, inputs [batch, 32, 32, 3].
//
// Train is data_batch_1.bin to data_batch_5.bin, whichever of them are there; validation is
// test_batch.bin. Pixels are scaled to [0, 1] and normalised with the mean and the (population)
// standard deviation of each channel over the training images that were loaded. Training images
// are padded with black on all sides, cropped to 32x32 at a random place and mirrored at random,
// in the order of torchvision's RandomCrop(32, padding=4), RandomHorizontalFlip(), ToTensor(),
// Normalize(): the padding is black before it is normalised. Validation images are as they are.
//
// Holds 3073 bytes an image; filling a row takes about 2 us.
class Cifar10 final : public ImageDataset {
 public:
  static constexpr int64_t kSide = 32;
  static constexpr int64_t kChannels = 3;
  static constexpr int64_t kClasses = 10;

  // Reads all files. The error names the file and says what is wrong with it: missing (and where to
  // get it), cut off, or a label that is no class.
  static absl::StatusOr<std::shared_ptr<const Cifar10>> Load(const std::string& data_directory,
                                                             const Cifar10Options& options);

  std::string Describe() const override;
  Shape input_shape() const override { return {kSide, kSide, kChannels}; }
  int64_t classes() const override { return kClasses; }
  int64_t size(Split split) const override;
  std::optional<uint64_t> file_checksum() const override;

  // Mean and standard deviation of each channel, on the scale of [0, 1].
  const std::array<double, kChannels>& mean() const { return mean_; }
  const std::array<double, kChannels>& standard_deviation() const { return standard_deviation_; }

 protected:
  void FillImage(Split split, const SampleKey& key, absl::Span<float> image,
                 absl::Span<int32_t> targets) const override;

 private:
  struct Images {
    std::vector<uint8_t> labels;
    std::vector<uint8_t> pixels;  // [image, height, width, channels]
  };

  explicit Cifar10(const Cifar10Options& options);
  static absl::Status AppendRecords(const std::string& path, const std::string& contents,
                                    Images& images);
  void ComputeNormalization();

  Cifar10Options options_;
  Philox philox_;
  Images train_;
  Images validation_;
  std::array<double, kChannels> mean_{};
  std::array<double, kChannels> standard_deviation_{};
  std::array<std::array<float, kChannels>, 256> normalized_{};  // [byte][channel]
};

}  // namespace lockstep
