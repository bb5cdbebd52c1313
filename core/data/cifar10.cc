#include "core/data/cifar10.h"

#include <cmath>  // std::sqrt
#include <cstddef>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/checksum.h"
#include "core/base/status.h"
#include "core/data/data_file.h"

namespace lockstep {
namespace {

constexpr int64_t kPlane = Cifar10::kSide * Cifar10::kSide;
constexpr int64_t kImage = kPlane * Cifar10::kChannels;
constexpr int64_t kRecord = 1 + kImage;  // the label, then red, green and blue planes
constexpr int kTrainFiles = 5;

constexpr char kWhereToGetIt[] =
    "CIFAR-10 in its binary version is on the University of Toronto's page "
    "https://www.cs.toronto.edu/~kriz/cifar.html; unpack it in the data directory.";

// Uniform on 0, ..., n-1.
int64_t Below(uint32_t bits, int64_t n) {
  return static_cast<int64_t>(uint64_t{bits} * static_cast<uint64_t>(n) >> 32);
}

}  // namespace

Cifar10::Cifar10(const Cifar10Options& options)
    : options_(options), philox_(PhiloxKey(options.augmentation_seed, "augmentation", "cifar10")) {}

absl::StatusOr<std::shared_ptr<const Cifar10>> Cifar10::Load(const std::string& data_directory,
                                                             const Cifar10Options& options) {
  if (options.crop_padding < 0 || options.crop_padding > kSide) {
    return InvalidArgument("crop_padding must be between 0 and ", kSide, ", but is ",
                           options.crop_padding);
  }
  std::shared_ptr<Cifar10> dataset(new Cifar10(options));
  const auto read = [&](const std::string& name, Images& images) -> absl::Status {
    const std::string relative = DataPath(options.directory, name);
    LS_ASSIGN_OR_RETURN(const std::string contents,
                        ReadDataFile(data_directory, relative, kWhereToGetIt));
    return AppendRecords(DataPath(data_directory, relative), contents, images);
  };
  for (int file = 1; file <= kTrainFiles; ++file) {
    const absl::Status status = read(absl::StrCat("data_batch_", file, ".bin"), dataset->train_);
    if (!status.ok() && !absl::IsNotFound(status)) return status;
  }
  if (dataset->train_.labels.empty()) {
    return absl::NotFoundError(
        absl::StrCat("cannot find CIFAR-10: none of data_batch_1.bin to data_batch_5.bin is in \"",
                     DataPath(data_directory, options.directory), "\". ", kWhereToGetIt, " ",
                     HowToNameTheDirectory(data_directory)));
  }
  LS_RETURN_IF_ERROR(read("test_batch.bin", dataset->validation_));
  dataset->ComputeNormalization();
  return std::shared_ptr<const Cifar10>(std::move(dataset));
}

absl::Status Cifar10::AppendRecords(const std::string& path, const std::string& contents,
                                    Images& images) {
  const int64_t bytes = static_cast<int64_t>(contents.size());
  if (bytes == 0 || bytes % kRecord != 0) {
    return absl::DataLossError(
        absl::StrCat("\"", path, "\" is cut off or no CIFAR-10 file: it has ", bytes,
                     " bytes, which is not a positive multiple of ", kRecord,
                     ", the bytes of one image with its label. Get it again. ", kWhereToGetIt));
  }
  const int64_t records = bytes / kRecord;
  const int64_t before = static_cast<int64_t>(images.labels.size());
  images.labels.reserve(before + records);
  images.pixels.resize((before + records) * kImage);
  for (int64_t record = 0; record < records; ++record) {
    const char* source = contents.data() + record * kRecord;
    const uint8_t label = static_cast<uint8_t>(*source++);
    if (label >= kClasses) {
      return absl::DataLossError(absl::StrCat("\"", path, "\": the label of record ", record,
                                              " (byte ", record * kRecord, ") is ", label,
                                              ", but the classes are 0 to ", kClasses - 1,
                                              ". The file is damaged or no CIFAR-10 file."));
    }
    images.labels.push_back(label);
    uint8_t* image = images.pixels.data() + (before + record) * kImage;
    for (int64_t channel = 0; channel < kChannels; ++channel) {
      for (int64_t pixel = 0; pixel < kPlane; ++pixel) {
        image[pixel * kChannels + channel] = static_cast<uint8_t>(*source++);
      }
    }
  }
  return absl::OkStatus();
}

void Cifar10::ComputeNormalization() {
  // By histogram: the sums are of integers, so they are exact.
  std::array<std::array<int64_t, 256>, kChannels> count{};
  for (size_t i = 0; i < train_.pixels.size(); i += kChannels) {
    for (int64_t channel = 0; channel < kChannels; ++channel) {
      ++count[channel][train_.pixels[i + channel]];
    }
  }
  const double values = static_cast<double>(train_.labels.size() * kPlane);
  for (int64_t channel = 0; channel < kChannels; ++channel) {
    double sum = 0;
    for (int byte = 0; byte < 256; ++byte) sum += static_cast<double>(count[channel][byte]) * byte;
    const double mean = sum / values;
    double squares = 0;
    for (int byte = 0; byte < 256; ++byte) {
      squares += static_cast<double>(count[channel][byte]) * (byte - mean) * (byte - mean);
    }
    // A set of one flat colour has no spread; any scale serves then.
    const double deviation = squares > 0 ? std::sqrt(squares / values) : 255.0;
    mean_[channel] = mean / 255;
    standard_deviation_[channel] = deviation / 255;
    for (int byte = 0; byte < 256; ++byte) {
      normalized_[byte][channel] = static_cast<float>((byte - mean) / deviation);
    }
  }
}

std::string Cifar10::Describe() const {
  return absl::StrFormat(
      "CIFAR-10: %d training and %d test images, normalised with mean (%.4f, %.4f, %.4f) and "
      "standard deviation (%.4f, %.4f, %.4f)",
      size(Split::kTrain), size(Split::kValidation), mean_[0], mean_[1], mean_[2],
      standard_deviation_[0], standard_deviation_[1], standard_deviation_[2]);
}

int64_t Cifar10::size(Split split) const {
  const Images& images = split == Split::kTrain ? train_ : validation_;
  return static_cast<int64_t>(images.labels.size());
}

std::optional<uint64_t> Cifar10::file_checksum() const {
  uint64_t checksum = 0;
  int64_t first = 0;
  for (const std::vector<uint8_t>* bytes :
       {&train_.labels, &train_.pixels, &validation_.labels, &validation_.pixels}) {
    checksum += ChecksumOf(1, first, std::as_bytes(std::span(*bytes)));
    first += std::ssize(*bytes);
  }
  return checksum;
}

void Cifar10::FillImage(Split split, const SampleKey& key, absl::Span<float> image,
                        absl::Span<int32_t> targets) const {
  const Images& images = split == Split::kTrain ? train_ : validation_;
  int64_t down = 0;  // where the crop lies, seen from the unpadded image
  int64_t right = 0;
  bool mirrored = false;
  if (split == Split::kTrain) {
    const std::array<uint32_t, 4> random =
        philox_.Block(key.augmentation, static_cast<uint64_t>(key.index));
    const int64_t places = 2 * int64_t{options_.crop_padding} + 1;
    down = Below(random[0], places) - options_.crop_padding;
    right = Below(random[1], places) - options_.crop_padding;
    mirrored = options_.flip && random[2] >> 31 != 0;
  }
  static constexpr uint8_t kBlack[kChannels] = {};
  const uint8_t* source = images.pixels.data() + key.index * kImage;
  float* out = image.data();
  for (int64_t y = down; y < down + kSide; ++y) {
    for (int64_t column = 0; column < kSide; ++column) {
      const int64_t x = right + (mirrored ? kSide - 1 - column : column);
      const bool inside = y >= 0 && y < kSide && x >= 0 && x < kSide;
      const uint8_t* pixel = inside ? source + (y * kSide + x) * kChannels : kBlack;
      for (int64_t channel = 0; channel < kChannels; ++channel) {
        *out++ = normalized_[pixel[channel]][channel];
      }
    }
  }
  targets[0] = images.labels[key.index];
}

}  // namespace lockstep
