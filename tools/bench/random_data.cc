#include "tools/bench/random_data.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "core/data/image_dataset.h"
#include "core/data/token_dataset.h"

namespace lockstep {
namespace {

constexpr int64_t kSamples = 1 << 20;
constexpr int64_t kImages = 64;

class Images final : public ImageDataset {
 public:
  Images(int64_t side, int64_t classes)
      : side_(side), classes_(classes), pixels_(kImages * side * side * 3) {
    Philox(PhiloxKey(1, "bench", "pictures")).FillNormal(pixels_, 0, 0, 1);
  }

  std::string Describe() const override { return "random images"; }
  Shape input_shape() const override { return {side_, side_, 3}; }
  int64_t classes() const override { return classes_; }
  int64_t size(Split) const override { return kSamples; }

 protected:
  void FillImage(Split, const SampleKey& key, absl::Span<float> image,
                 absl::Span<int32_t> targets) const override {
    const auto first = pixels_.begin() + key.index % kImages * side_ * side_ * 3;
    std::copy_n(first, image.size(), image.begin());
    targets[0] = static_cast<int32_t>(key.index % classes_);
  }

 private:
  int64_t side_, classes_;
  std::vector<float> pixels_;
};

class Tokens final : public TokenDataset {
 public:
  Tokens(int64_t vocabulary, int64_t context)
      : TokenDataset(context), vocabulary_(vocabulary), random_(PhiloxKey(1, "bench", "tokens")) {}

  std::string Describe() const override { return "random tokens"; }
  int64_t classes() const override { return vocabulary_; }
  int64_t size(Split) const override { return kSamples; }

 protected:
  absl::Status FillWindow(Split, const SampleKey& key, absl::Span<int32_t> window) const override {
    const auto first = static_cast<uint64_t>(key.index * (context() + 1));
    for (size_t i = 0; i < window.size(); ++i) {
      window[i] = static_cast<int32_t>(random_.Bits(first + i) % vocabulary_);
    }
    return absl::OkStatus();
  }

 private:
  int64_t vocabulary_;
  Philox random_;
};

}  // namespace

std::shared_ptr<const Dataset> RandomImages(int64_t side, int64_t classes) {
  return std::make_shared<Images>(side, classes);
}

std::shared_ptr<const Dataset> RandomTokens(int64_t vocabulary, int64_t context) {
  return std::make_shared<Tokens>(vocabulary, context);
}

}  // namespace lockstep
