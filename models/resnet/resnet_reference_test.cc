// ResNets forward and backward against the same networks written as plain loops in double
// precision, from the paper and torchvision's description.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/autograd/testing/arrays.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "gtest/gtest.h"
#include "models/resnet/resnet.h"
#include "models/testing/comparison.h"
#include "models/testing/double_graph.h"

namespace lockstep {
namespace {

using reference::Array;
using Value = DoubleGraph::Value;

constexpr double kEpsilon = 1e-5f;

// Relative to the largest gradient of a tensor. In double precision, a change of the images by 1e-8
// moves the gradients of ResNet-18 by some 1e-7: it amplifies tenfold. fp32 rounds by 6e-8 at each
// of its 40 operations, and is off by 1e-5 in the end; the rest is margin.
constexpr double kTolerance = 1e-4;

// Below these magnitudes the sign of what reaches an activation is open to rounding, and with it
// whether a gradient passes: the reference must stay above, or the choice of numbers is to blame.
// The outputs of the last block of ResNet-18 are off by 1.4e-5, those of a single block by 1e-6.
constexpr double kNetworkKinks = 3e-5, kBlockKinks = 1e-5;
constexpr uint64_t kImages = 3;  // a stream of numbers that does

class ResNetReferenceTest : public testing::Test {
 protected:
  // norm(conv(x))
  static Value Unit(DoubleGraph& g, const DoubleParameters& p, const std::string& name, Value x,
                    const Window& window) {
    x = g.Convolution(x, p[name + ".conv.weight"], window);
    return g.BatchNorm(x, p[name + ".norm.weight"], p[name + ".norm.bias"], kEpsilon);
  }

  static Value CifarStem(DoubleGraph& g, const DoubleParameters& p, Value x) {
    return g.Relu(Unit(g, p, "stem.unit", x, {3, 1, 1}));
  }
  static Value ImageNetStem(DoubleGraph& g, const DoubleParameters& p, Value x) {
    return g.MaxPool(g.Relu(Unit(g, p, "stem.unit", x, {7, 2, 3})), {3, 2, 1});
  }

  // The two kinds of residual block; one with a stride or more channels projects its input.
  enum class Shortcut { kIdentity, kProjection };
  static Value Basic(DoubleGraph& g, const DoubleParameters& p, const std::string& name, Value x,
                     int stride, Shortcut shortcut) {
    Value y = g.Relu(Unit(g, p, name + ".unit1", x, {3, stride, 1}));
    y = Unit(g, p, name + ".unit2", y, {3, 1, 1});
    return g.Relu(g.Add(y, Shortened(g, p, name, x, stride, shortcut)));
  }
  static Value Bottleneck(DoubleGraph& g, const DoubleParameters& p, const std::string& name,
                          Value x, int stride, Shortcut shortcut) {
    Value y = g.Relu(Unit(g, p, name + ".unit1", x, {1, 1, 0}));
    y = g.Relu(Unit(g, p, name + ".unit2", y, {3, stride, 1}));
    y = Unit(g, p, name + ".unit3", y, {1, 1, 0});
    return g.Relu(g.Add(y, Shortened(g, p, name, x, stride, shortcut)));
  }
  static Value Shortened(DoubleGraph& g, const DoubleParameters& p, const std::string& name,
                         Value x, int stride, Shortcut shortcut) {
    if (shortcut == Shortcut::kIdentity) return x;
    return Unit(g, p, name + ".shortcut", x, {1, stride, 0});
  }

  static Value CifarResNet18(DoubleGraph& g, const DoubleParameters& p, Value x) {
    x = CifarStem(g, p, x);
    x = Basic(g, p, "layer1.0", x, 1, Shortcut::kIdentity);
    x = Basic(g, p, "layer1.1", x, 1, Shortcut::kIdentity);
    for (const char* stage : {"layer2", "layer3", "layer4"}) {
      x = Basic(g, p, absl::StrCat(stage, ".0"), x, 2, Shortcut::kProjection);
      x = Basic(g, p, absl::StrCat(stage, ".1"), x, 1, Shortcut::kIdentity);
    }
    return g.Linear(g.GlobalAveragePool(x), p["head.fc.weight"], p["head.fc.bias"]);
  }

  void Start(const Module& module) {
    Materialize(module.Parameters(), /*seed=*/1, kernels_);
    Materialize(module.Statistics(), kernels_);
    Perturb(kernels_, module.Parameters(), 0.05f);
  }

  // Block `index` of a full-width network, on images of [2, image, image, channels].
  template <typename Formula>
  void ExpectBlock(const ResNetOptions& options, int index, int64_t image, int64_t channels,
                   Formula&& formula) {
    Model model = MakeResNet(options);
    Block& block = *model.blocks[index];
    SCOPED_TRACE(absl::StrCat("ResNet-", options.depth, " ", block.name()));
    Start(block);
    const Array images = RandomArray({2, image, image, channels}, kImages);

    DoubleGraph graph;
    const DoubleParameters parameters(graph, kernels_, block.Parameters());
    const Value x = graph.Input(images), y = formula(graph, parameters, x);
    const Array dy = RandomArray(graph.value(y).shape, 2);
    graph.Seed(y, dy);
    graph.Backward();
    ASSERT_GT(graph.closest_kink(), kBlockKinks);

    Tape tape(kernels_);
    Pass pass = {.tape = tape};
    const Variable in = tape.Result(Upload(kernels_, images), true);
    const Variables out = block.Run(pass, {in});
    EXPECT_TRUE(IsNear(graph.value(y), Download(kernels_, out[0].value), 1e-5));
    tape.Backward({{out[0], Upload(kernels_, dy)}});
    EXPECT_TRUE(IsNear(graph.gradient(x), Download(kernels_, in.gradient->Take()), kTolerance));
    parameters.ExpectGradients(kTolerance);
  }

  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
};

TEST_F(ResNetReferenceTest, NarrowResNet18) {
  constexpr int64_t kBatch = 4, kClasses = 7;
  Model model = MakeResNet({.depth = 18, .classes = kClasses, .width = 8, .image = 16});
  for (const auto& block : model.blocks) Start(*block);
  const Array images = RandomArray({kBatch, 16, 16, 3}, kImages);
  const std::vector<int32_t> targets = RandomIntegers(kBatch, kClasses, 2);

  DoubleGraph graph;
  const DoubleParameters parameters(graph, kernels_, model.Parameters());
  const Value logits = CifarResNet18(graph, parameters, graph.Input(images));
  const double expected = graph.CrossEntropy(logits, targets, 1.0 / kBatch);
  graph.Backward();
  ASSERT_GT(graph.closest_kink(), kNetworkKinks);

  Tape tape(kernels_);
  Pass pass = {.tape = tape};
  const double loss =
      TrainOnce(model, pass, Upload(kernels_, images), Upload(kernels_, {kBatch}, targets));
  EXPECT_NEAR(loss, expected, 1e-5 * expected);
  parameters.ExpectGradients(kTolerance);
}

TEST_F(ResNetReferenceTest, StemsOfFullWidth) {
  ExpectBlock({.stem = ResNetOptions::Stem::kCifar}, 0, 10, 3, CifarStem);
  ExpectBlock({.stem = ResNetOptions::Stem::kImageNet}, 0, 26, 3, ImageNetStem);
}

TEST_F(ResNetReferenceTest, BasicBlocksOfFullWidth) {
  ExpectBlock({.depth = 18}, 1, 8, 64, [](auto& g, auto& p, Value x) {
    return Basic(g, p, "layer1.0", x, 1, Shortcut::kIdentity);
  });
  ExpectBlock({.depth = 18}, 5, 8, 128, [](auto& g, auto& p, Value x) {
    return Basic(g, p, "layer3.0", x, 2, Shortcut::kProjection);
  });
  ExpectBlock({.depth = 34}, 4, 7, 64, [](auto& g, auto& p, Value x) {
    return Basic(g, p, "layer2.0", x, 2, Shortcut::kProjection);
  });
}

TEST_F(ResNetReferenceTest, BottleneckBlocksOfFullWidth) {
  ExpectBlock({.depth = 50}, 1, 6, 64, [](auto& g, auto& p, Value x) {
    return Bottleneck(g, p, "layer1.0", x, 1, Shortcut::kProjection);
  });
  ExpectBlock({.depth = 50}, 2, 6, 256, [](auto& g, auto& p, Value x) {
    return Bottleneck(g, p, "layer1.1", x, 1, Shortcut::kIdentity);
  });
  ExpectBlock({.depth = 50}, 4, 8, 256, [](auto& g, auto& p, Value x) {
    return Bottleneck(g, p, "layer2.0", x, 2, Shortcut::kProjection);
  });
}

}  // namespace
}  // namespace lockstep
