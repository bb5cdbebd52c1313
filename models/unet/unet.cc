#include "models/unet/unet.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/nn/layers.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

constexpr Window kThree = {.kernel = 3, .stride = 1, .padding = 1};
constexpr Window kHalve = {.kernel = 2, .stride = 2, .padding = 0};

constexpr char kDetail[] = "detail";

// Two 3x3 convolutions, each with its normalisation and ReLU: what all levels are made of.
class ConvolutionBlock : public Block {
 public:
  ConvolutionBlock(std::string name, int64_t in, int64_t out)
      : Block(std::move(name)),
        unit1_(AddChild<ConvolutionUnit>("unit1", in, out, kThree, Activation::kRelu)),
        unit2_(AddChild<ConvolutionUnit>("unit2", out, out, kThree, Activation::kRelu)) {}

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    return {Convolve(pass, std::move(inputs[0]))};
  }

  // Takes its input, so that the memory can go as soon as it has been read.
  Variable Convolve(Pass& pass, Variable x) {
    x = unit1_(pass, x);
    return unit2_(pass, x);
  }

 private:
  ConvolutionUnit& unit1_;
  ConvolutionUnit& unit2_;
};

class DownBlock : public ConvolutionBlock {
 public:
  // `pixels` of a sample, before they are halved both ways.
  DownBlock(std::string name, int64_t in, int64_t out, int64_t pixels)
      : ConvolutionBlock(std::move(name), in, out) {
    DeclareStash(kDetail, pixels * out);
  }

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    const Variable x = Convolve(pass, std::move(inputs[0]));
    Stash(pass, kDetail, x);
    return {MaxPool(pass.tape, x, kHalve)};
  }
};

class UpBlock : public ConvolutionBlock {
 public:
  // `below` channels come from the level below, `out` from the same level's way down.
  UpBlock(std::string name, int64_t below, int64_t out)
      : ConvolutionBlock(std::move(name), below + out, out) {
    DeclarePop(kDetail);
  }

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    const Variable x = Upsample(pass.tape, inputs[0]);
    return {Convolve(pass, Concatenate(pass.tape, x, Pop(pass, kDetail)))};
  }
};

class Head : public Block {
 public:
  Head(int64_t channels, int64_t classes)
      : Block("head"), linear_(AddChild<LinearLayer>("fc", channels, classes)) {}

 protected:
  Variables Forward(Pass& pass, Variables inputs) override { return {linear_(pass, inputs[0])}; }

 private:
  LinearLayer& linear_;
};

// Adds a block of two convolutions, with what it costs and what its layers move when split: the
// first by output channels, the second by the matching inputs. What lies between blocks stays
// whole, skips included, so that a concatenation is that of a single rank.
template <typename Kind, typename... Arguments>
void AddBlock(Model& model, const std::string& name, int64_t in, int64_t out, int64_t pixels,
              Arguments... arguments) {
  model.blocks.push_back(std::make_unique<Kind>(name, arguments...));
  const int64_t macs = pixels * 9 * (in * out + out * out);
  model.blocks.back()->cost = {macs, pixels * out, 0, {{"convolution", macs}}};
  // The images want no gradient.
  const bool is_first = model.blocks.size() == 1;
  const std::string column = name + ".unit1", row = name + ".unit2";
  model.split_traffic.push_back({.layer = column,
                                 .backward = is_first ? 0 : pixels * in,
                                 .operation = {"convolution", column}});
  model.split_traffic.push_back(
      {.layer = row, .forward = pixels * out, .operation = {"convolution", row}});
}

}  // namespace

Model MakeUNet(const UNetOptions& options) {
  CHECK_GE(options.levels, 1);
  CHECK_EQ(options.image % (int64_t{1} << options.levels), 0) << "cannot be halved so often";
  const auto width = [&](int64_t level) { return options.width << level; };
  const auto pixels = [&](int64_t level) {
    return (options.image >> level) * (options.image >> level);
  };
  Model model;
  for (int64_t level = 0; level < options.levels; ++level) {
    const int64_t in = level == 0 ? 3 : width(level - 1), out = width(level);
    AddBlock<DownBlock>(model, absl::StrCat("down", level), in, out, pixels(level), in, out,
                        pixels(level));
    model.blocks.back()->cost.output_elements = pixels(level + 1) * out;
    model.blocks.back()->Isolate(absl::StrCat("level", level));
  }
  const int64_t above = width(options.levels - 1), bottom = width(options.levels);
  AddBlock<ConvolutionBlock>(model, "bottom", above, bottom, pixels(options.levels), above, bottom);
  for (int64_t level = options.levels - 1; level >= 0; --level) {
    const int64_t below = width(level + 1), out = width(level);
    AddBlock<UpBlock>(model, absl::StrCat("up", level), below + out, out, pixels(level), below,
                      out);
    model.blocks.back()->Isolate(absl::StrCat("level", level));
  }
  model.blocks.push_back(std::make_unique<Head>(width(0), options.classes));
  model.blocks.back()->cost = {pixels(0) * width(0) * options.classes, pixels(0) * options.classes};
  model.split_plan = {{"*.unit1", SplitStyle::kColumn}, {"*.unit2", SplitStyle::kRow}};
  return model;
}

}  // namespace lockstep
