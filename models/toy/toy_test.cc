#include "models/toy/toy.h"

#include <string>
#include <vector>

#include "core/autograd/testing/arrays.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/testing/comparison.h"
#include "models/testing/double_graph.h"

namespace lockstep {
namespace {

using reference::Array;
using Value = DoubleGraph::Value;

TEST(ToyTest, IsLinearReluLinear) {
  const Model model = MakeToy({});
  std::vector<std::string> blocks, parameters;
  for (const auto& block : model.blocks) blocks.push_back(block->name());
  for (const Parameter* parameter : model.Parameters()) parameters.push_back(parameter->name);
  EXPECT_THAT(blocks, testing::ElementsAre("net1", "relu", "net2"));
  EXPECT_THAT(parameters, testing::ElementsAre("net1.linear.weight", "net1.linear.bias",
                                               "net2.linear.weight", "net2.linear.bias"));
  EXPECT_EQ(model.ParameterCount(), 10 * 10 + 10 + 10 * 5 + 5);
  EXPECT_EQ(model.ForwardMacsPerSample(), 10 * 10 + 10 * 5);
}

// Forward and backward against plain loops in double precision, on rows and on images, which it
// flattens. Sums of 12 terms at most: a few roundings of 6e-8.
TEST(ToyTest, TrainsAsTheFormulasSay) {
  CpuAllocator allocator;
  CpuKernels kernels(allocator);
  for (const Shape& shape : {Shape{6, 12}, Shape{6, 2, 2, 3}}) {
    Model model = MakeToy({.inputs = 12, .hidden = 9, .outputs = 4});
    Materialize(model.Parameters(), /*seed=*/1, kernels);
    const Array x = RandomArray(shape, 1);
    const std::vector<int32_t> targets = RandomIntegers(6, 4, 2);

    DoubleGraph g;
    const DoubleParameters p(g, kernels, model.Parameters());
    const Value rows = g.Reshape(g.Input(x), {6, 12});
    const Value hidden = g.Relu(g.Linear(rows, p["net1.linear.weight"], p["net1.linear.bias"]));
    const Value logits = g.Linear(hidden, p["net2.linear.weight"], p["net2.linear.bias"]);
    const double expected = g.CrossEntropy(logits, targets, 1.0 / 6);
    g.Backward();
    ASSERT_GT(g.closest_kink(), 1e-5);  // where rounding leaves the sign open

    Tape tape(kernels);
    Pass pass = {.tape = tape};
    const double loss = TrainOnce(model, pass, Upload(kernels, x), Upload(kernels, {6}, targets));
    EXPECT_NEAR(loss, expected, 1e-6 * expected);
    p.ExpectGradients(2e-6);
  }
}

}  // namespace
}  // namespace lockstep
