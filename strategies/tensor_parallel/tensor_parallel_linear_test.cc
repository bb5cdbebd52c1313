// A linear layer that is split, alone, against a plain one.

#include <memory>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/autograd/testing/arrays.h"
#include "core/comm/launch.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/nn/layers.h"
#include "gtest/gtest.h"
#include "strategies/tensor_parallel/tensor_group.h"

namespace lockstep {
namespace {

using reference::Array;

constexpr int64_t kRows = 13;
constexpr uint64_t kSeed = 5;
// Relative to the largest element: sums of some hundred products in another order.
constexpr double kTolerance = 1e-5;

// Columns of a matrix, as a matrix.
Array Columns(const Array& x, const Range& columns) {
  const int64_t width = x.shape[-1];
  Array part(Shape{x.shape.rows(), columns.count});
  for (int64_t i = 0; i < part.elements(); ++i) {
    part.value[i] = x[i / columns.count * width + columns.first + i % columns.count];
  }
  return part;
}

Array Rows(const Array& x, const Range& rows) {
  const int64_t width = x.elements() / x.shape[0];
  Shape shape = x.shape;
  shape = shape.With(0, rows.count);
  return Array(shape, {x.value.begin() + rows.first * width,
                       x.value.begin() + (rows.first + rows.count) * width});
}

// What one forward and backward of a layer gave.
struct Outcome {
  Array y, dx, dweight, dbias;
};

Outcome RunLayer(LinearLayer& layer, Kernels& kernels, const Array& x, const Array& dy) {
  Materialize(layer.Parameters(), kSeed, kernels);
  Tape tape(kernels);
  Pass pass = {.tape = tape};
  const Variable in(Upload(kernels, x), std::make_shared<GradientSlot>());
  const Variable y = layer(pass, in);
  Outcome outcome = {.y = Download(kernels, y.value), .dx = {}, .dweight = {}, .dbias = {}};
  tape.Backward({{y, Upload(kernels, dy)}});
  outcome.dx = Download(kernels, in.gradient->Take());
  outcome.dweight = Download(kernels, layer.weight().gradient);
  outcome.dbias = Download(kernels, layer.bias()->gradient);
  return outcome;
}

class TensorParallelLinearTest
    : public ::testing::TestWithParam<std::tuple<SplitStyle, int, int64_t, int64_t>> {};

TEST_P(TensorParallelLinearTest, ComputesWhatAPlainLayerDoes) {
  const auto [style, ranks, in, out] = GetParam();
  const Array x = RandomArray({kRows, in}, 1), dy = RandomArray({kRows, out}, 2);
  CpuAllocator allocator;
  CpuKernels kernels(allocator);
  LinearLayer plain("layer", in, out);
  const Outcome expected = RunLayer(plain, kernels, x, dy);

  const auto run = [&, style = style, in = in, out = out](RankHandle& rank) -> absl::Status {
    CpuAllocator own_allocator;
    CpuKernels own_kernels(own_allocator);
    TensorGroup group(rank.comm(), TensorGroup::Sequence::kWhole);
    LinearLayer layer("layer", in, out);
    layer.Split(style, group);
    const Range outputs = EvenRange(out, rank.size(), rank.rank());
    const Range inputs = EvenRange(in, rank.size(), rank.rank());
    const bool row = style == SplitStyle::kRow;
    const bool gathered = style == SplitStyle::kColumnGathered;
    const Outcome actual = RunLayer(layer, own_kernels, row ? Columns(x, inputs) : x,
                                    row || gathered ? dy : Columns(dy, outputs));
    EXPECT_TRUE(
        IsNear(row || gathered ? expected.y : Columns(expected.y, outputs), actual.y, kTolerance));
    EXPECT_TRUE(IsNear(row ? Columns(expected.dx, inputs) : expected.dx, actual.dx, kTolerance));
    EXPECT_TRUE(IsNear(row ? Columns(expected.dweight, inputs) : Rows(expected.dweight, outputs),
                       actual.dweight, kTolerance));
    EXPECT_TRUE(
        IsNear(row ? expected.dbias : Rows(expected.dbias, outputs), actual.dbias, kTolerance));
    // Memory falls with the ranks.
    EXPECT_EQ(layer.weight().value.elements(), (row ? inputs.count * out : outputs.count * in));
    return absl::OkStatus();
  };
  const absl::Status status = RunRanks(ranks, {}, run);
  EXPECT_TRUE(status.ok()) << status;
}

INSTANTIATE_TEST_SUITE_P(Styles, TensorParallelLinearTest,
                         ::testing::Combine(::testing::Values(SplitStyle::kColumnGathered,
                                                              SplitStyle::kColumn,
                                                              SplitStyle::kRow),
                                            ::testing::Values(1, 2, 3, 4),
                                            ::testing::Values(17, 64), ::testing::Values(11, 96)),
                         [](const auto& parameters) {
                           const SplitStyle style = std::get<0>(parameters.param);
                           return absl::StrCat(style == SplitStyle::kRow      ? "Row"
                                               : style == SplitStyle::kColumn ? "Column"
                                                                              : "ColumnGathered",
                                               std::get<1>(parameters.param), "Ranks",
                                               std::get<2>(parameters.param), "To",
                                               std::get<3>(parameters.param));
                         });

}  // namespace
}  // namespace lockstep
