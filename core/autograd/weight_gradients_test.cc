// Gradients of parameters over token leaves: each leaf is the plain operation on its rows alone,
// and leaves are added along the tree.

#include "core/autograd/weight_gradients.h"

#include <cmath>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "core/autograd/experts.h"
#include "core/autograd/operations.h"
#include "core/autograd/testing/arrays.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using reference::Array;

// An operation of x [rows, kWidth] with parameters, of which the first few have gradients.
struct Case {
  std::string name;
  std::vector<Shape> parameters;
  std::function<Variable(Tape&, const Variable& x, std::vector<Leaf>& parameters)> run;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// No row of so many numbers begins on a 64-byte boundary, unless it is the sixteenth.
constexpr int64_t kWidth = 5, kHidden = 7;

std::vector<Case> Cases() {
  return {
      {"Linear",
       {{kHidden, kWidth}, {kHidden}},
       [](Tape& tape, const Variable& x, std::vector<Leaf>& p) {
         return Linear(tape, x, p[0], &p[1]);
       }},
      {"AddBias",
       {{kWidth}},
       [](Tape& tape, const Variable& x, std::vector<Leaf>& p) {
         return AddBias(tape, x, &p[0], nullptr);
       }},
      {"LayerNorm",
       {{kWidth}, {kWidth}},
       [](Tape& tape, const Variable& x, std::vector<Leaf>& p) {
         return LayerNorm(tape, x, p[0], p[1], 1e-5f);
       }},
      {"RmsNorm",
       {{kWidth}},
       [](Tape& tape, const Variable& x, std::vector<Leaf>& p) {
         return RmsNorm(tape, x, p[0], 1e-5f);
       }},
      {"SwiGluLinear",
       {{2 * kHidden, kWidth}, {kWidth, kHidden}},
       [](Tape& tape, const Variable& x, std::vector<Leaf>& p) {
         return SwiGluLinear(tape, Linear(tape, x, p[0], nullptr), p[1], nullptr);
       }},
      {"GeluMlp",
       {{kHidden, kWidth}, {kHidden}, {kWidth, kHidden}, {kWidth}},
       [](Tape& tape, const Variable& x, std::vector<Leaf>& p) {
         return ApplyGeluMlp(tape, x, {p[0], p[1], p[2], &p[3]}, nullptr);
       }},
      {"GeluLinear",
       {{kHidden, kWidth}, {kHidden}},
       [](Tape& tape, const Variable& x, std::vector<Leaf>& p) {
         return GeluLinear(tape, x, p[0], &p[1], nullptr);
       }},
      {"AddProduct",
       {{2, kWidth}},
       [](Tape& tape, const Variable& x, std::vector<Leaf>& p) {
         return AddProduct(tape, x, x, p[0], 1);
       }},
      {"Experts",
       {{2 * kWidth * kHidden, kWidth}, {kWidth * kHidden, kWidth}},
       [](Tape& tape, const Variable& x, std::vector<Leaf>& p) {
         // As many experts as columns, which are the logits. Few rows: some experts get none.
         const RoutedRows routed =
             Route(tape, x, {.routing = {.experts = kWidth, .chosen = 2}, .bias = {}});
         const Variable pre = ExpertLinear(tape, Dispatch(tape, x, routed.rows), p[0], routed.rows);
         return Combine(tape, ExpertSwiGluLinear(tape, pre, p[1], routed.rows), routed, x);
       }},
      {"Embedding",
       {{4, kWidth}},
       [](Tape& tape, const Variable& x, std::vector<Leaf>& p) {
         // A row's word follows from the row, whatever rows are beside it.
         const Array values = Download(tape.kernels(), x.value);
         std::vector<int32_t> ids;
         for (int64_t row = 0; row < x.shape()[0]; ++row) {
           ids.push_back(static_cast<int32_t>(std::abs(values[row * kWidth]) * 10) % 4);
         }
         const Variable words(Upload(tape.kernels(), {x.shape()[0]}, ids));
         return Add(tape, x, Embedding(tape, words, p[0]));
       }},
  };
}

class TokenLeavesTest : public testing::TestWithParam<Case> {
 protected:
  std::vector<Leaf> Parameters(DType gradients) {
    std::vector<Leaf> parameters(GetParam().parameters.size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].value = Upload(kernels_, RandomArray(GetParam().parameters[i], 10 + i));
      parameters[i].gradient_dtype = gradients;
    }
    return parameters;
  }

  // Forward and backward of one micro-batch. Returns the gradient of x.
  Array Run(std::vector<Leaf>& parameters, const Array& x, const Array& dy, int64_t leaf_rows) {
    Tape tape(kernels_, Tape::Recording::kOn, leaf_rows);
    const Variable in = tape.Result(Upload(kernels_, x), true);
    const Variable out = GetParam().run(tape, in, parameters);
    // As wide as the result.
    const Array gradient = Columns(dy, out.shape()[-1]);
    tape.Backward({{out, Upload(kernels_, gradient)}});
    return Download(kernels_, in.gradient->Take());
  }

  static Array Columns(const Array& x, int64_t columns) {
    Array cut({x.shape[0], columns});
    for (int64_t i = 0; i < cut.elements(); ++i) {
      cut.value[i] = x[i / columns * x.shape[1] + i % columns];
    }
    return cut;
  }
  static Array Rows(const Array& x, int64_t first, int64_t count) {
    Array cut({count, x.shape[1]});
    for (int64_t i = 0; i < cut.elements(); ++i) cut.value[i] = x[first * x.shape[1] + i];
    return cut;
  }

  Tensor Sum(const Tensor& a, const Tensor& b) {
    Tensor sum = kernels_.EmptyLike(a);
    kernels_.Add(a, b, sum);
    return sum;
  }

  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
};

INSTANTIATE_TEST_SUITE_P(Operations, TokenLeavesTest, testing::ValuesIn(Cases()),
                         testing::PrintToStringParamName());

// The sum of three leaves is (0 + 1) + 2, that of four (0 + 1) + (2 + 3). A gradient in bf16 rounds
// each node.
TEST_P(TokenLeavesTest, AreAddedAlongTheTree) {
  constexpr int64_t kRows = 6;
  for (const int64_t leaves : {3, 4}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const Array x = RandomArray({leaves * kRows, kWidth}, 1);
      const Array dy = RandomArray({leaves * kRows, kHidden}, 2);
      std::vector<Leaf> whole = Parameters(dtype);
      const Array dx = Run(whole, x, dy, kRows);
      std::vector<std::vector<Leaf>> alone;
      for (int64_t leaf = 0; leaf < leaves; ++leaf) {
        alone.push_back(Parameters(dtype));
        const Array own = Run(alone.back(), Rows(x, leaf * kRows, kRows),
                              Rows(dy, leaf * kRows, kRows), /*leaf_rows=*/0);
        EXPECT_TRUE(SameBits(own, Rows(dx, leaf * kRows, kRows)));
      }
      for (size_t p = 0; p < whole.size(); ++p) {
        const auto of = [&](int leaf) { return alone[leaf][p].gradient; };
        const Tensor left = Sum(of(0), of(1));
        const Tensor sum = Sum(left, leaves == 3 ? of(2) : Sum(of(2), of(3)));
        EXPECT_TRUE(SameBits(Download(kernels_, sum), Download(kernels_, whole[p].gradient)))
            << "parameter " << p << ", " << leaves << " leaves, " << Name(dtype);
      }
    }
  }
}

// Accumulators keep a chain over micro-batches for each leaf; then comes the tree.
TEST_P(TokenLeavesTest, MicroBatchesAddUpWithinALeaf) {
  constexpr int64_t kRows = 6, kLeaves = 2;
  std::vector<Leaf> several = Parameters(DType::kF32), chains[kLeaves];
  for (Leaf& parameter : several) parameter.MakeAccumulators(kernels_, kLeaves);
  for (std::vector<Leaf>& chain : chains) chain = Parameters(DType::kF32);
  for (uint64_t micro_batch = 0; micro_batch < 3; ++micro_batch) {
    const Array x = RandomArray({kLeaves * kRows, kWidth}, 20 + micro_batch);
    const Array dy = RandomArray({kLeaves * kRows, kHidden}, 30 + micro_batch);
    Run(several, x, dy, kRows);
    for (int64_t leaf = 0; leaf < kLeaves; ++leaf) {
      Run(chains[leaf], Rows(x, leaf * kRows, kRows), Rows(dy, leaf * kRows, kRows), 0);
    }
  }
  for (size_t p = 0; p < several.size(); ++p) {
    const Tensor sum = several[p].SumAccumulators(kernels_, 0, kLeaves, 1);
    EXPECT_TRUE(sum.same_storage(several[p].gradient));
    EXPECT_TRUE(SameBits(Download(kernels_, Sum(chains[0][p].gradient, chains[1][p].gradient)),
                         Download(kernels_, sum)))
        << "parameter " << p;
  }
}

}  // namespace
}  // namespace lockstep
