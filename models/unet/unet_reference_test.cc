// U-Nets forward and backward against the same networks written as plain loops in double
// precision.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/autograd/testing/arrays.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "gtest/gtest.h"
#include "models/testing/comparison.h"
#include "models/testing/double_graph.h"
#include "models/unet/unet.h"

namespace lockstep {
namespace {

using reference::Array;
using Value = DoubleGraph::Value;

constexpr double kEpsilon = 1e-5f;

// As in resnet_reference_test.cc: relative to the largest gradient of a tensor, and no input of a
// ReLU so close to 0 that fp32 could be on its other side.
constexpr double kTolerance = 1e-4, kKinks = 1e-5;

class UNetReferenceTest : public testing::Test {
 protected:
  static Value Unit(DoubleGraph& g, const DoubleParameters& p, const std::string& name, Value x) {
    x = g.Convolution(x, p[name + ".conv.weight"], {3, 1, 1});
    return g.Relu(g.BatchNorm(x, p[name + ".norm.weight"], p[name + ".norm.bias"], kEpsilon));
  }

  static Value TwoUnits(DoubleGraph& g, const DoubleParameters& p, const std::string& block,
                        Value x) {
    return Unit(g, p, block + ".unit2", Unit(g, p, block + ".unit1", x));
  }

  // The logits; from level `level` on down and up again where it says more than one.
  static Value UNet(DoubleGraph& g, const DoubleParameters& p, int64_t levels, Value x) {
    return g.Linear(From(g, p, 0, levels, x), p["head.fc.weight"], p["head.fc.bias"]);
  }
  static Value From(DoubleGraph& g, const DoubleParameters& p, int64_t level, int64_t levels,
                    Value x) {
    if (level == levels) return TwoUnits(g, p, "bottom", x);
    const Value detail = TwoUnits(g, p, absl::StrCat("down", level), x);
    const Value below = From(g, p, level + 1, levels, g.MaxPool(detail, {2, 2, 0}));
    return TwoUnits(g, p, absl::StrCat("up", level), g.Concatenate(g.Upsample(below), detail));
  }

  void ExpectAgreement(const UNetOptions& options, int64_t batch, uint64_t images_stream) {
    Model model = MakeUNet(options);
    Materialize(model.Parameters(), /*seed=*/1, kernels_);
    Materialize(model.Statistics(), kernels_);
    Perturb(kernels_, model.Parameters(), 0.05f);
    const Array images = RandomArray({batch, options.image, options.image, 3}, images_stream);
    const int64_t pixels = batch * options.image * options.image;
    const std::vector<int32_t> targets =
        RandomIntegers(pixels, static_cast<int32_t>(options.classes), 2);

    DoubleGraph graph;
    const DoubleParameters parameters(graph, kernels_, model.Parameters());
    const Value logits = UNet(graph, parameters, options.levels, graph.Input(images));
    const double expected = graph.CrossEntropy(logits, targets, 1.0 / static_cast<double>(pixels));
    graph.Backward();
    ASSERT_GT(graph.closest_kink(), kKinks);

    Tape tape(kernels_);
    Pass pass = {.tape = tape};
    const double loss = TrainOnce(model, pass, Upload(kernels_, images),
                                  Upload(kernels_, {batch, options.image, options.image}, targets));
    EXPECT_NEAR(loss, expected, 1e-5 * expected);
    EXPECT_TRUE(pass.skips.empty());
    parameters.ExpectGradients(kTolerance);
  }

  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
};

TEST_F(UNetReferenceTest, OneLevel) {
  ExpectAgreement({.levels = 1, .width = 8, .classes = 5, .image = 6}, 3, 1);
}

TEST_F(UNetReferenceTest, ThreeLevels) {
  ExpectAgreement({.levels = 3, .width = 4, .classes = 11, .image = 16}, 2, 1);
}

// The channels of the experiment, on small images.
TEST_F(UNetReferenceTest, TwoWideLevels) {
  ExpectAgreement({.levels = 2, .width = 16, .classes = 11, .image = 4}, 3, 1);
}

}  // namespace
}  // namespace lockstep
