#include "models/resnet/resnet.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/nn/layers.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

constexpr Window kThree = {.kernel = 3, .stride = 1, .padding = 1};
constexpr Window kOne = {.kernel = 1, .stride = 1, .padding = 0};
constexpr Window kStemPool = {.kernel = 3, .stride = 2, .padding = 1};

Window WithStride(Window window, int stride) {
  window.stride = stride;
  return window;
}

Window StemWindow(ResNetOptions::Stem stem) {
  return stem == ResNetOptions::Stem::kCifar ? kThree
                                             : Window{.kernel = 7, .stride = 2, .padding = 3};
}

class Stem : public Block {
 public:
  explicit Stem(const ResNetOptions& options)
      : Block("stem"),
        pool_(options.stem == ResNetOptions::Stem::kImageNet),
        unit_(AddChild<ConvolutionUnit>("unit", 3, options.width, StemWindow(options.stem),
                                        Activation::kRelu)) {}

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    Variable x = unit_(pass, inputs[0]);
    return {pool_ ? MaxPool(pass.tape, x, kStemPool) : x};
  }

 private:
  bool pool_;
  ConvolutionUnit& unit_;
};

// relu(f(x) + shortcut(x)), f being two 3x3 units, or 1x1, 3x3, 1x1 with four times the channels.
class ResidualBlock : public Block {
 public:
  static constexpr int kBasicExpansion = 1, kBottleneckExpansion = 4;

  ResidualBlock(std::string name, int64_t in, int64_t width, int stride, int expansion)
      : Block(std::move(name)) {
    const int64_t out = width * expansion;
    const auto add = [this](const char* leaf, int64_t from, int64_t to, const Window& window,
                            Activation activation) {
      units_.push_back(&AddChild<ConvolutionUnit>(leaf, from, to, window, activation));
    };
    if (expansion == kBasicExpansion) {
      add("unit1", in, width, WithStride(kThree, stride), Activation::kRelu);
    } else {
      add("unit1", in, width, kOne, Activation::kRelu);
      add("unit2", width, width, WithStride(kThree, stride), Activation::kRelu);
    }
    const bool basic = expansion == kBasicExpansion;
    add(basic ? "unit2" : "unit3", width, out, basic ? kThree : kOne, Activation::kRelu);
    if (stride != 1 || in != out) {
      shortcut_ = &AddChild<ConvolutionUnit>("shortcut", in, out, WithStride(kOne, stride),
                                             Activation::kNone);
    }
  }

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    const Variable shortcut = shortcut_ ? (*shortcut_)(pass, inputs[0]) : inputs[0];
    Variable x = std::move(inputs[0]);
    for (size_t i = 0; i + 1 < units_.size(); ++i) x = (*units_[i])(pass, x);
    return {(*units_.back())(pass, x, &shortcut)};
  }

 private:
  std::vector<ConvolutionUnit*> units_;  // the last adds the shortcut before its activation
  ConvolutionUnit* shortcut_ = nullptr;  // null: the input itself
};

class Head : public Block {
 public:
  Head(int64_t channels, int64_t classes)
      : Block("head"), linear_(AddChild<LinearLayer>("fc", channels, classes)) {}

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    return {linear_(pass, GlobalAveragePool(pass.tape, inputs[0]))};
  }

 private:
  LinearLayer& linear_;
};

struct Depth {
  int blocks[4];
  int expansion;
};

Depth DepthOf(int depth) {
  switch (depth) {
    case 18:
      return {{2, 2, 2, 2}, ResidualBlock::kBasicExpansion};
    case 34:
      return {{3, 4, 6, 3}, ResidualBlock::kBasicExpansion};
    case 50:
      return {{3, 4, 6, 3}, ResidualBlock::kBottleneckExpansion};
  }
  LOG(FATAL) << "no ResNet of depth " << depth;
}

// Multiply-adds of one residual block whose images have `image` pixels on a side before the stride
// and `strided` after it.
int64_t BlockMacs(int64_t in, int64_t width, int stride, int expansion, int64_t image,
                  int64_t strided) {
  const int64_t out = width * expansion, before = image * image, after = strided * strided;
  int64_t macs = 0;
  if (expansion == ResidualBlock::kBasicExpansion) {
    macs = after * 9 * (in * width + width * width);
  } else {
    macs = before * in * width + after * (9 * width * width + width * out);
  }
  return macs + (stride != 1 || in != out ? after * in * out : 0);
}

}  // namespace

Model MakeResNet(const ResNetOptions& options) {
  const Depth depth = DepthOf(options.depth);
  const bool basic = depth.expansion == ResidualBlock::kBasicExpansion;
  const Window stem = StemWindow(options.stem);
  Model model;
  model.blocks.push_back(std::make_unique<Stem>(options));
  int64_t image = stem.Output(options.image), channels = options.width;
  const int64_t stem_macs = image * image * stem.kernel * stem.kernel * 3 * channels;
  if (options.stem == ResNetOptions::Stem::kImageNet) image = kStemPool.Output(image);
  const auto cost = [](int64_t macs, int64_t outputs) {
    return BlockCost{macs, outputs, 0, {{"convolution", macs}}};
  };
  model.blocks.back()->cost = cost(stem_macs, image * image * channels);
  for (int stage = 0; stage < 4; ++stage) {
    const int64_t width = options.width << stage;
    for (int i = 0; i < depth.blocks[stage]; ++i) {
      const int stride = stage > 0 && i == 0 ? 2 : 1;
      model.blocks.push_back(std::make_unique<ResidualBlock>(
          absl::StrCat("layer", stage + 1, ".", i), channels, width, stride, depth.expansion));
      const int64_t strided = WithStride(kThree, stride).Output(image);
      const int64_t macs = BlockMacs(channels, width, stride, depth.expansion, image, strided);
      const std::string& block = model.blocks.back()->name();
      const std::string column = block + (basic ? ".unit1" : ".unit2");
      const std::string row = block + (basic ? ".unit2" : ".unit3");
      model.split_traffic.push_back({.layer = column,
                                     .backward = image * image * (basic ? channels : width),
                                     .operation = {"convolution", column}});
      channels = width * depth.expansion;
      image = strided;
      model.split_traffic.push_back(
          {.layer = row, .forward = image * image * channels, .operation = {"convolution", row}});
      model.blocks.back()->cost = cost(macs, image * image * channels);
    }
  }
  model.blocks.push_back(std::make_unique<Head>(channels, options.classes));
  model.blocks.back()->cost = {channels * options.classes, options.classes};
  // Within a block the last unit takes the channels as the one before it has split them; what lies
  // between blocks stays whole. A rule names a unit, its convolution and its normalisation.
  model.split_plan = basic ? std::vector<SplitRule>{{"layer*.unit1", SplitStyle::kColumn},
                                                    {"layer*.unit2", SplitStyle::kRow}}
                           : std::vector<SplitRule>{{"layer*.unit2", SplitStyle::kColumn},
                                                    {"layer*.unit3", SplitStyle::kRow}};
  return model;
}

}  // namespace lockstep
