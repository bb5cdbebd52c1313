// Matrix products, linear layers and MLPs: the bits of an element do not depend on threads, on the
// number of rows or columns in the call, or, in fp32 and fp16, on the instructions.

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>  // std::pair
#include <vector>

#include "core/kernels/cpu/invariance_suite.h"
#include "gtest/gtest.h"

namespace lockstep::invariance {
namespace {

// Several blocks of a product's chain, and panels of uneven widths.
constexpr int64_t kIn = 410, kOut = 154, kHidden = 800;

Shape Rows(int64_t batch, int64_t width) { return {batch * kTime, width}; }

std::vector<NamedKernel> LinearKernels() {
  std::vector<NamedKernel> kernels;
  const auto add = [&](const std::string& name, bool by_row, auto run) {
    kernels.push_back({name, run, by_row});
  };
  add("MatMul", true, [](Bench& b, int64_t batch) {
    b.kernels().MatMul(b.Normal(Rows(batch, kIn), "a"), Transpose::kNo, b.Normal({kIn, kOut}, "b"),
                       Transpose::kNo, Write::kOverwrite, b.Out(Rows(batch, kOut)));
  });
  for (const Write write : {Write::kOverwrite, Write::kAccumulate}) {
    add("MatMul, transposed", false, [write](Bench& b, int64_t batch) {
      b.kernels().MatMul(b.Normal(Rows(batch, kIn), "a"), Transpose::kYes,
                         b.Normal({kOut, batch * kTime}, "b"), Transpose::kYes, write,
                         b.Held({kIn, kOut}, "c", DType::kF32));
    });
    add("LinearBackward, weights", false, [write](Bench& b, int64_t batch) {
      b.kernels().LinearBackward(b.Normal(Rows(batch, kOut), "dy"), b.Normal(Rows(batch, kIn), "x"),
                                 b.Normal({kOut, kIn}, "w"), write, b.Out(Rows(batch, kIn)),
                                 b.Held({kOut, kIn}, "dw", DType::kF32),
                                 b.Held({kOut}, "dbias", DType::kF32));
    });
    add("LinearBackward, weights of 16 bits", false, [write](Bench& b, int64_t batch) {
      b.kernels().LinearBackward(b.Normal(Rows(batch, kOut), "dy"), b.Normal(Rows(batch, kIn), "x"),
                                 b.Normal({kOut, kIn}, "w"), write, Tensor(),
                                 b.Held({kOut, kIn}, "dw", DType::kBF16),
                                 b.Held({kOut}, "dbias", DType::kBF16));
    });
    add("GeluMlpBackward", false, [write](Bench& b, int64_t batch) {
      b.kernels().GeluMlpBackward(b.Normal(Rows(batch, kIn), "x"),
                                  b.Normal(Rows(batch, kHidden), "pre"),
                                  b.Normal({kHidden, kIn}, "up"), b.Normal({kIn, kHidden}, "down"),
                                  b.Normal(Rows(batch, kIn), "dy"), write,
                                  {.x = b.Out(Rows(batch, kIn)),
                                   .up = b.Held({kHidden, kIn}, "dup", DType::kF32),
                                   .up_bias = b.Held({kHidden}, "dup_bias", DType::kF32),
                                   .down = b.Held({kIn, kHidden}, "ddown", DType::kF32),
                                   .down_bias = b.Held({kIn}, "ddown_bias", DType::kF32)});
    });
  }
  add("Linear", true, [](Bench& b, int64_t batch) {
    b.kernels().Linear(b.Normal(Rows(batch, kIn), "x"), b.Normal({kOut, kIn}, "w"),
                       b.Normal({kOut}, "bias"), b.Normal(Rows(batch, kOut), "residual"),
                       b.Out(Rows(batch, kOut)));
  });
  add("LinearBackward, input", true, [](Bench& b, int64_t batch) {
    b.kernels().LinearBackward(b.Normal(Rows(batch, kOut), "dy"), Tensor(),
                               b.Normal({kOut, kIn}, "w"), Write::kOverwrite,
                               b.Out(Rows(batch, kIn)), Tensor(), Tensor());
  });
  add("GeluMlp", true, [](Bench& b, int64_t batch) {
    b.kernels().GeluMlp(b.Normal(Rows(batch, kIn), "x"), b.Normal({kHidden, kIn}, "up"),
                        b.Normal({kHidden}, "up_bias"), b.Normal({kIn, kHidden}, "down"),
                        b.Normal({kIn}, "down_bias"), b.Normal(Rows(batch, kIn), "residual"),
                        b.Out(Rows(batch, kHidden)), b.Out(Rows(batch, kIn)));
  });
  const FeatureLeaves of_in = {{{0, kIn / 2}}, {{kIn / 2, kIn / 2}}};
  const FeatureLeaves of_hidden = {{{0, 400}}, {{400, 200}}, {{600, 200}}};
  // A packed projection of three leaves, and padding.
  const FeatureLeaves of_out = {{{0, 25}, {75, 25}}, {{25, 25}, {100, 25}}, {{50, 25}, {125, 25}}};
  add("LinearByLeaves", true, [of_in](Bench& b, int64_t batch) {
    b.kernels().LinearByLeaves(b.Normal(Rows(batch, kIn), "x"), b.Normal({kOut, kIn}, "w"), of_in,
                               b.Out(Rows(batch, kOut)));
  });
  add("LinearBackwardByLeaves, input", true, [of_out](Bench& b, int64_t batch) {
    b.kernels().LinearBackwardByLeaves(b.Normal(Rows(batch, kOut), "dy"), Tensor(),
                                       b.Normal({kOut, kIn}, "w"), of_out, Write::kOverwrite,
                                       b.Out(Rows(batch, kIn)), Tensor(), Tensor());
  });
  add("GeluMlpByLeaves", true, [of_hidden](Bench& b, int64_t batch) {
    b.kernels().GeluMlpByLeaves(b.Normal(Rows(batch, kIn), "x"), b.Normal({kHidden, kIn}, "up"),
                                b.Normal({kHidden}, "up_bias"), b.Normal({kIn, kHidden}, "down"),
                                of_hidden, b.Out(Rows(batch, kHidden)), b.Out(Rows(batch, kIn)));
  });
  add("GeluMlpBackwardByLeaves, input", true, [of_hidden](Bench& b, int64_t batch) {
    b.kernels().GeluMlpBackwardByLeaves(
        b.Normal(Rows(batch, kIn), "x"), b.Normal(Rows(batch, kHidden), "pre"),
        b.Normal({kHidden, kIn}, "up"), b.Normal({kIn, kHidden}, "down"), of_hidden,
        b.Normal(Rows(batch, kIn), "dy"), Write::kOverwrite,
        {.x = b.Out(Rows(batch, kIn)), .up = {}, .up_bias = {}, .down = {}, .down_bias = {}});
  });
  add("GeluLinear", true, [](Bench& b, int64_t batch) {
    b.kernels().GeluLinear(b.Normal(Rows(batch, kHidden), "pre"), b.Normal({kIn, kHidden}, "down"),
                           b.Normal({kIn}, "bias"), b.Normal(Rows(batch, kIn), "residual"),
                           b.Out(Rows(batch, kIn)));
  });
  return kernels;
}

class LinearInvarianceTest : public testing::TestWithParam<DType> {};

TEST_P(LinearInvarianceTest, ThreadsAndInstructionsDoNotMatter) {
  // bf16 is multiplied by the widest processors alone; elsewhere it goes through fp32.
  std::vector<InstructionSet> sets = {WidestInstructionSet()};
  if (GetParam() != DType::kBF16) sets.push_back(InstructionSet::kAvx2);
  ExpectThreadsDoNotMatter(LinearKernels(), GetParam(), sets);
}

TEST_P(LinearInvarianceTest, Bf16ThroughFp32DoesNotDependOnThreads) {
  ExpectThreadsDoNotMatter(LinearKernels(), GetParam(), {InstructionSet::kAvx2});
}

TEST_P(LinearInvarianceTest, RowsDoNotDependOnTheOthersOfTheCall) {
  ExpectRowsDoNotDependOnOthers(LinearKernels(), GetParam());
}

// Rows [first, first + count) of the matrix x.
Tensor RowsOf(Bench& b, const Tensor& x, int64_t first, int64_t count) {
  const Tensor rows = b.kernels().Empty({count, x.shape()[-1]}, x.dtype());
  const int64_t row_bytes = x.bytes() / x.shape().rows();
  std::memcpy(rows.raw(), x.raw() + first * row_bytes, count * row_bytes);
  return rows;
}

Tensor ColumnsOf(Bench& b, const Tensor& x, int64_t first, int64_t count) {
  const Tensor columns = b.kernels().Empty({x.shape().rows(), count}, x.dtype());
  b.kernels().CopyColumns(x, first, count, columns, 0);
  return columns;
}

std::string BytesOf(const Tensor& x) {
  return std::string(reinterpret_cast<const char*>(x.raw()), x.bytes());
}

// A layer that has some of the outputs computes these as the layer that has all of them does.
TEST_P(LinearInvarianceTest, ColumnsDoNotDependOnTheOthersOfTheCall) {
  const ThreadsRestored restored;
  SetThreads(2);
  Bench b(WidestInstructionSet(), GetParam());
  const Tensor x = b.Normal(Rows(kBatch, kIn), "x"), w = b.Normal({kOut, kIn}, "w");
  const Tensor dy = b.Normal(Rows(kBatch, kOut), "dy");
  const Tensor y = b.Out(Rows(kBatch, kOut)), dw = b.Floats({kOut, kIn}), dbias = b.Floats({kOut});
  b.kernels().Linear(x, w, Tensor(), Tensor(), y);
  b.kernels().LinearBackward(dy, x, w, Write::kOverwrite, Tensor(), dw, dbias);
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 1}, {3, 50}, {100, 54}}) {
    const Tensor some_w = RowsOf(b, w, first, count), some_dy = ColumnsOf(b, dy, first, count);
    const Tensor some_y = b.Out(Rows(kBatch, count));
    const Tensor some_dw = b.Floats({count, kIn}), some_dbias = b.Floats({count});
    b.kernels().Linear(x, some_w, Tensor(), Tensor(), some_y);
    b.kernels().LinearBackward(some_dy, x, some_w, Write::kOverwrite, Tensor(), some_dw,
                               some_dbias);
    EXPECT_TRUE(BytesOf(some_y) == BytesOf(ColumnsOf(b, y, first, count))) << first;
    EXPECT_TRUE(BytesOf(some_dw) == BytesOf(RowsOf(b, dw, first, count))) << first;
    EXPECT_EQ(BytesOf(some_dbias),
              BytesOf(dbias).substr(first * sizeof(float), count * sizeof(float)))
        << first;
  }
}

// In fp32 an MLP in one kernel has the bits of its layers one by one.
TEST(MlpInvarianceTest, AnHasTheBitsOfItsLayers) {
  Bench b(WidestInstructionSet(), DType::kF32);
  const Tensor x = b.Normal(Rows(kBatch, kIn), "x"), up = b.Normal({kHidden, kIn}, "up");
  const Tensor down = b.Normal({kIn, kHidden}, "down"), bias = b.Normal({kHidden}, "bias");
  const Tensor pre = b.Out(Rows(kBatch, kHidden)), y = b.Out(Rows(kBatch, kIn));
  b.kernels().GeluMlp(x, up, bias, down, Tensor(), Tensor(), pre, y);
  const Tensor linear = b.Out(Rows(kBatch, kHidden)), gelu = b.Out(Rows(kBatch, kHidden));
  const Tensor output = b.Out(Rows(kBatch, kIn));
  b.kernels().Linear(x, up, bias, Tensor(), linear);
  b.kernels().Gelu(linear, gelu);
  b.kernels().Linear(gelu, down, Tensor(), Tensor(), output);
  EXPECT_TRUE(BytesOf(linear) == BytesOf(pre));
  EXPECT_TRUE(BytesOf(output) == BytesOf(y));
}

INSTANTIATE_TEST_SUITE_P(DTypes, LinearInvarianceTest,
                         testing::Values(DType::kF32, DType::kF16, DType::kBF16),
                         [](const auto& param) { return std::string(Name(param.param)); });

}  // namespace
}  // namespace lockstep::invariance
