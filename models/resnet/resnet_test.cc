#include "models/resnet/resnet.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

// Building a model allocates nothing: these are as cheap as small ones.
TEST(ResNetTest, HasThePublishedNumberOfParameters) {
  const auto count = [](int depth) {
    return MakeResNet({.depth = depth, .stem = ResNetOptions::Stem::kImageNet, .classes = 1000})
        .ParameterCount();
  };
  EXPECT_EQ(count(18), 11689512);
  EXPECT_EQ(count(34), 21797672);
  EXPECT_EQ(count(50), 25557032);
}

TEST(ResNetTest, IsBuiltWithoutMemory) {
  const Model model = MakeResNet({.depth = 50});
  for (const Parameter* parameter : model.Parameters()) {
    EXPECT_FALSE(parameter->value.defined()) << parameter->name;
  }
}

// Multiply-adds from the shapes alone, layer by layer: out pixels * out channels * in channels *
// kernel^2 of each convolution, as https://arxiv.org/abs/1512.03385 (table 1) lists them.
int64_t CountMacs(const ResNetOptions& options) {
  int64_t macs = 0, pixels = options.image, channels = 3;
  const auto convolution = [&](int64_t in, int64_t out, int64_t kernel, int64_t stride) {
    const int64_t strided = (pixels + stride - 1) / stride;  // padding keeps the rest
    macs += strided * strided * out * in * kernel * kernel;
    return strided;
  };
  const bool cifar = options.stem == ResNetOptions::Stem::kCifar;
  pixels = convolution(channels, options.width, cifar ? 3 : 7, cifar ? 1 : 2);
  if (!cifar) pixels = (pixels + 1) / 2;
  channels = options.width;
  const std::vector<int> blocks =
      options.depth == 18 ? std::vector<int>{2, 2, 2, 2} : std::vector<int>{3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    const int64_t width = options.width << stage;
    for (int block = 0; block < blocks[stage]; ++block) {
      const int stride = stage > 0 && block == 0 ? 2 : 1;
      const int64_t out = options.depth == 50 ? 4 * width : width;
      if (stride == 2 || channels != out) convolution(channels, out, 1, stride);
      if (options.depth == 50) {
        convolution(channels, width, 1, 1);
        pixels = convolution(width, width, 3, stride);
        convolution(width, out, 1, 1);
      } else {
        pixels = convolution(channels, width, 3, stride);
        convolution(width, width, 3, 1);
      }
      channels = out;
    }
  }
  return macs + channels * options.classes;
}

TEST(ResNetTest, CountsItsWork) {
  for (int depth : {18, 34, 50}) {
    for (const auto& [stem, image] :
         {std::pair<ResNetOptions::Stem, int64_t>{ResNetOptions::Stem::kCifar, 32},
          {ResNetOptions::Stem::kCifar, 28},
          {ResNetOptions::Stem::kImageNet, 224},
          {ResNetOptions::Stem::kImageNet, 200}}) {
      const ResNetOptions options = {
          .depth = depth, .stem = stem, .classes = 1000, .width = 16, .image = image};
      EXPECT_EQ(MakeResNet(options).ForwardMacsPerSample(), CountMacs(options))
          << depth << " at " << image;
    }
  }
}

TEST(ResNetTest, CountsTheWorkThatIsPublished) {
  // CIFAR ResNet-18: 555.42 M with its classifier; ImageNet: 1.81 G, 3.66 G, 4.09 G (torchvision).
  EXPECT_EQ(MakeResNet({}).ForwardMacsPerSample(), 555422720);
  const auto imagenet = [](int depth) {
    const Model model = MakeResNet(
        {.depth = depth, .stem = ResNetOptions::Stem::kImageNet, .classes = 1000, .image = 224});
    return static_cast<double>(model.ForwardMacsPerSample()) / 1e9;
  };
  EXPECT_NEAR(imagenet(18), 1.81, 0.01);
  EXPECT_NEAR(imagenet(34), 3.66, 0.01);
  EXPECT_NEAR(imagenet(50), 4.09, 0.01);
}

TEST(ResNetTest, IsAListOfStemResidualBlocksAndHead) {
  const Model model = MakeResNet({.depth = 18});
  std::vector<std::string> names;
  for (const auto& block : model.blocks) names.push_back(block->name());
  EXPECT_EQ(names,
            (std::vector<std::string>{"stem", "layer1.0", "layer1.1", "layer2.0", "layer2.1",
                                      "layer3.0", "layer3.1", "layer4.0", "layer4.1", "head"}));
  std::set<std::string> unique;
  for (const Parameter* parameter : model.Parameters()) unique.insert(parameter->name);
  EXPECT_EQ(unique.size(), model.Parameters().size());
  EXPECT_EQ(model.Statistics().size(), 20u);  // one a convolution
}

}  // namespace
}  // namespace lockstep
