// Kernels outside linear layers and convolutions: the bits of a result do not depend on threads, on
// instructions, or on the number of rows in the call.

#include <algorithm>  // std::max
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/kernels/cpu/invariance_suite.h"
#include "gtest/gtest.h"

namespace lockstep::invariance {
namespace {

// Widths that leave tails behind 16 lanes.
constexpr int64_t kWidth = 76, kClasses = 203, kVocabulary = 50;
constexpr int64_t kHeads = 4, kHeadWidth = 20;

// The first rows of a tensor that was made for kBatch samples: the same values for any batch.
Shape Rows(int64_t batch, int64_t width) { return {batch * kTime, width}; }

std::vector<NamedKernel> AllKernels() {
  std::vector<NamedKernel> kernels;
  const auto add = [&](const std::string& name, bool by_row, auto run) {
    kernels.push_back({name, run, by_row});
  };
  add("LayerNorm", true, [](Bench& b, int64_t batch) {
    const int64_t rows = batch * kTime;
    b.kernels().LayerNorm(b.Normal(Rows(batch, kWidth), "x"), b.Normal({kWidth}, "scale"),
                          b.Normal({kWidth}, "shift"), 1e-5f, b.Out(Rows(batch, kWidth)),
                          b.Floats({rows}), b.Floats({rows}));
  });
  for (const Write write : {Write::kOverwrite, Write::kAccumulate}) {
    add("LayerNormBackward", false, [write](Bench& b, int64_t batch) {
      const int64_t rows = batch * kTime;
      b.kernels().LayerNormBackward(
          b.Normal(Rows(batch, kWidth), "x"), b.Normal({kWidth}, "scale"),
          b.Normal({rows}, "mean", DType::kF32), b.Normal({rows}, "inverse", DType::kF32),
          b.Normal(Rows(batch, kWidth), "dy"), b.Normal(Rows(batch, kWidth), "residual"),
          b.Out(Rows(batch, kWidth)), write, b.Held({kWidth}, "dscale", DType::kF32),
          b.Held({kWidth}, "dshift", DType::kF32));
    });
    add("ColumnSums", false, [write](Bench& b, int64_t batch) {
      b.kernels().ColumnSums(b.Normal(Rows(batch, kWidth), "x"), write,
                             b.Held({kWidth}, "sums", DType::kF32));
    });
    add("EmbeddingBackward", false, [write](Bench& b, int64_t batch) {
      b.kernels().EmbeddingBackward(b.Integers(batch * kTime, kVocabulary, "ids"),
                                    b.Normal(Rows(batch, kWidth), "dy"), write,
                                    b.Held({kVocabulary, kWidth}, "dtable", DType::kF32));
    });
    add("AddPositionsBackward", false, [write](Bench& b, int64_t batch) {
      b.kernels().AddPositionsBackward(b.Normal({batch, kTime, kWidth}, "dy"), write,
                                       b.Held({kTime + 3, kWidth}, "dtable", DType::kF32));
    });
  }
  add("RmsNorm", true, [](Bench& b, int64_t batch) {
    const Tensor x = b.Normal(Rows(batch, kWidth), "x"), scale = b.Normal({kWidth}, "scale"),
                 inverse = b.Floats({batch * kTime});
    b.kernels().RmsNorm(x, scale, 1e-5f, b.Out(Rows(batch, kWidth)), inverse);
    b.kernels().RmsNormBackward(x, scale, inverse, b.Normal(Rows(batch, kWidth), "dy"),
                                b.Normal(Rows(batch, kWidth), "residual"),
                                b.Out(Rows(batch, kWidth)), Write::kOverwrite, Tensor());
  });
  add("RmsNormBackward", false, [](Bench& b, int64_t batch) {
    b.kernels().RmsNormBackward(b.Normal(Rows(batch, kWidth), "x"), b.Normal({kWidth}, "scale"),
                                b.Normal({batch * kTime}, "inverse", DType::kF32),
                                b.Normal(Rows(batch, kWidth), "dy"), Tensor(),
                                b.Out(Rows(batch, kWidth)), Write::kAccumulate,
                                b.Held({kWidth}, "dscale", DType::kF32));
  });
  add("Rotate", true, [](Bench& b, int64_t batch) {
    constexpr int64_t kPositions = 40;
    const Tensor positions = b.Integers(batch * kTime, kPositions, "positions");
    for (int64_t i = 0; i < positions.elements(); ++i) {
      positions.data<int32_t>()[i] = std::max(0, positions.data<int32_t>()[i]);
    }
    b.kernels().Rotate({.heads = 2, .head_width = 26}, b.Normal(Rows(batch, kWidth), "x"),
                       positions, b.Normal({kPositions, 26}, "table", DType::kF32),
                       b.Out(Rows(batch, kWidth)));
  });
  add("Experts", true, [](Bench& b, int64_t batch) {
    constexpr Routing kRouting = {.experts = 21, .chosen = 3};
    const int64_t rows = batch * kTime;
    const Tensor logits = b.Normal({rows, kRouting.experts}, "logits");
    const Tensor chosen = b.kernels().Empty({rows, kRouting.chosen}, DType::kI32);
    const Tensor weights = b.Out({rows, kRouting.chosen}, DType::kF32);
    b.kernels().Route(kRouting, logits, Tensor(), chosen, weights);
    b.kernels().RouteBackward(
        kRouting, logits, chosen, b.Normal({rows, kRouting.chosen}, "dweights", DType::kF32),
        b.Normal({kRouting.experts}, "balance", DType::kF32), b.Out({rows, kRouting.experts}));
    const Tensor places = b.Integers(rows * kRouting.chosen, 5, "places");
    for (int64_t i = 0; i < places.elements(); ++i) {
      places.data<int32_t>()[i] = static_cast<int32_t>(i % 7 == 3 ? -1 : i);
    }
    const Tensor x = b.Normal(Rows(kRouting.chosen * batch, kWidth), "x");
    b.kernels().CombineRows(x, places, weights, b.Normal(Rows(batch, kWidth), "residual"),
                            b.Out(Rows(batch, kWidth)));
    const Tensor dx = b.Out(x.shape());
    b.kernels().Fill(dx, 0);
    b.kernels().CombineRowsBackward(b.Normal(Rows(batch, kWidth), "dsums"), x, places, weights, dx,
                                    b.Out({rows, kRouting.chosen}, DType::kF32));
  });
  add("SwiGlu", true, [](Bench& b, int64_t batch) {
    const Tensor x = b.Normal(Rows(batch, 2 * kWidth), "x");
    b.kernels().SwiGlu(x, b.Out(Rows(batch, kWidth)));
    b.kernels().SwiGluBackward(x, b.Normal(Rows(batch, kWidth), "dy"),
                               b.Out(Rows(batch, 2 * kWidth)));
  });
  add("AddPositions", true, [](Bench& b, int64_t batch) {
    b.kernels().AddPositions(b.Normal({batch, kTime, kWidth}, "x"),
                             b.Normal({kTime + 3, kWidth}, "table"), b.Out({batch, kTime, kWidth}));
  });
  for (const int64_t key_heads : {kHeads, kHeads / 2}) {
    for (const float dropout : {0.0f, 0.25f}) {
      const Attention attention = {.heads = kHeads,
                                   .head_width = kHeadWidth,
                                   .dropout = {.probability = dropout, .key = 3, .counter = 5},
                                   .total_heads = kHeads,
                                   .key_heads = key_heads};
      add("Attention", true, [attention](Bench& b, int64_t batch) {
        const Tensor qkv = b.Normal({batch, kTime, attention.packed_width()}, "qkv");
        const Tensor y = b.Out({batch, kTime, attention.query_width()});
        const Tensor log_sum_exp = b.Floats({batch, kHeads, kTime});
        b.kernels().AttentionForward(attention, qkv, y, log_sum_exp);
        b.kernels().AttentionBackward(attention, qkv, y, log_sum_exp,
                                      b.Normal({batch, kTime, attention.query_width()}, "dy"),
                                      b.Out({batch, kTime, attention.packed_width()}));
      });
    }
  }
  // Rows lie by (leaf, sample): they come from, and go to, tensors whose first dimension is
  // samples.
  for (const int64_t leaves : {2, 3}) {
    for (const float dropout : {0.0f, 0.25f}) {
      const Attention attention = {.heads = kHeads,
                                   .head_width = kHeadWidth,
                                   .dropout = {.probability = dropout, .key = 3, .counter = 5},
                                   .total_heads = kHeads,
                                   .key_heads = leaves == 2 ? kHeads : kHeads / 2};
      add("Attention over token leaves", true, [attention, leaves](Bench& b, int64_t batch) {
        constexpr int64_t kChunk = 61, kWidthOfAll = kHeads * kHeadWidth;
        const int64_t packed = attention.packed_width();
        const int64_t time = 2 * kChunk;  // of a leaf
        const auto by_leaf = [&](const Tensor& x) {
          const Tensor to =
              b.kernels().Empty({leaves * batch, x.elements() / (leaves * batch)}, x.dtype());
          const Tensor from = x.Reshape({batch, x.elements() / batch});
          const Tensor one = b.kernels().Empty({batch, to.shape()[1]}, x.dtype());
          const Tensor rows = to.Reshape({1, to.elements()});
          for (int64_t leaf = 0; leaf < leaves; ++leaf) {
            b.kernels().CopyColumns(from, leaf * to.shape()[1], to.shape()[1], one, 0);
            b.kernels().CopyColumns(one.Reshape({1, one.elements()}), 0, one.elements(), rows,
                                    leaf * one.elements());
          }
          return to;
        };
        const auto by_sample = [&](const Tensor& x) {
          const int64_t count = x.elements() / leaves;
          const Tensor one = b.kernels().Empty({batch, count / batch}, x.dtype());
          const Tensor to = b.Out({batch, x.elements() / batch}, x.dtype());
          for (int64_t leaf = 0; leaf < leaves; ++leaf) {
            b.kernels().CopyColumns(x.Reshape({1, x.elements()}), leaf * count, count,
                                    one.Reshape({1, count}), 0);
            b.kernels().CopyColumns(one, 0, count / batch, to, leaf * count / batch);
          }
        };
        const Tensor qkv = by_leaf(b.Normal({batch, leaves * time * packed}, "qkv"))
                               .Reshape({leaves * batch, time, packed});
        const Tensor dy = by_leaf(b.Normal({batch, leaves * time * kWidthOfAll}, "dy"))
                              .Reshape({leaves * batch, time, kWidthOfAll});
        const Tensor y = b.kernels().EmptyLike(dy), dqkv = b.kernels().EmptyLike(qkv),
                     log_sum_exp = b.kernels().Empty({leaves * batch, kHeads, time});
        b.kernels().AttentionForwardByTokenLeaves(attention, leaves, qkv, y, log_sum_exp);
        b.kernels().AttentionBackwardByTokenLeaves(attention, leaves, qkv, y, log_sum_exp, dy,
                                                   dqkv);
        for (const Tensor& result : {y, log_sum_exp, dqkv}) by_sample(result);
      });
    }
  }
  add("SoftmaxCrossEntropy", true, [](Bench& b, int64_t batch) {
    const int64_t rows = batch * kTime;
    for (const bool with_gradient : {true, false}) {
      b.kernels().SoftmaxCrossEntropy(b.Normal({rows, kClasses}, "logits"), kClasses - 3,
                                      b.Integers(rows, kClasses - 3, "targets"), 0.01f,
                                      b.Floats({rows}),
                                      with_gradient ? b.Out({rows, kClasses}) : Tensor());
    }
  });
  add("SplitCrossEntropy", true, [](Bench& b, int64_t batch) {
    const int64_t rows = batch * kTime;
    const Range classes = {100, kClasses - 3};  // the last three pad
    const Tensor logits = b.Normal({rows, kClasses}, "logits");
    const Tensor targets = b.Integers(rows, 2 * kClasses, "targets");
    const Tensor largest = b.Floats({rows}), sums = b.Floats({rows}), gaps = b.Floats({rows});
    b.kernels().LargestLogits(logits, classes, largest, b.Out({rows}, DType::kI32));
    b.kernels().SumExponentials(logits, classes, largest, targets, sums, gaps);
    b.kernels().SplitCrossEntropy(logits, classes, largest, sums, gaps, targets, 0.01f,
                                  b.Floats({rows}), b.Out({rows, kClasses}));
  });
  add("Gelu", true, [](Bench& b, int64_t batch) {
    b.kernels().Gelu(b.Normal(Rows(batch, kWidth), "x"), b.Out(Rows(batch, kWidth)));
    b.kernels().GeluBackward(b.Normal(Rows(batch, kWidth), "x"),
                             b.Normal(Rows(batch, kWidth), "dy"), b.Out(Rows(batch, kWidth)));
  });
  add("ApplyDropout", true, [](Bench& b, int64_t batch) {
    b.kernels().ApplyDropout({.probability = 0.3f, .key = 9, .counter = 2}, 0,
                             b.Normal(Rows(batch, kWidth), "x"), b.Out(Rows(batch, kWidth)));
  });
  add("Relu", true, [](Bench& b, int64_t batch) {
    b.kernels().Relu(b.Normal(Rows(batch, kWidth), "x"), b.Out(Rows(batch, kWidth)));
  });
  for (const OptimizerRule& optimizer : AllOptimizers()) {
    add("UpdateParameters of " + Name(optimizer), true, [optimizer](Bench& b, int64_t batch) {
      const Shape shape = Rows(batch, kWidth);
      Kernels::OptimizedTensor tensor = {.gradient = b.Normal(shape, "gradient"),
                                         .parameter = b.Held(shape, "parameter", DType::kF32),
                                         .copy = b.Out(shape)};
      const std::vector<std::string> names = StateNames(optimizer);
      for (size_t i = 0; i < names.size(); ++i) {
        const Tensor drawn = b.Normal(shape, names[i], DType::kF32);
        tensor.states[i] = b.Floats(shape);
        b.kernels().Multiply(drawn, drawn, tensor.states[i]);  // no second moment is negative
      }
      b.kernels().UpdateParameters(
          optimizer, {.weight_decay = 0.1f, .gradient_factor = 0.5f, .number = 17}, {tensor});
    });
  }
  add("SumOfAll", false, [](Bench& b, int64_t batch) {
    const Tensor x = b.Normal(Rows(batch, kWidth), "x", DType::kF32);
    const double total = b.kernels().SumOfAll({x}).Total();
    const double squares = b.kernels().SumOfSquares(b.Normal(Rows(batch, kWidth), "x"), 8).Total();
    const Tensor out = b.Out({2}, DType::kF64);
    out.data<double>()[0] = total;
    out.data<double>()[1] = squares;
  });
  return kernels;
}

class InvarianceTest : public testing::TestWithParam<DType> {};

TEST_P(InvarianceTest, ThreadsAndInstructionsDoNotMatter) {
  ExpectThreadsDoNotMatter(AllKernels(), GetParam(),
                           {WidestInstructionSet(), InstructionSet::kAvx2});
}

TEST_P(InvarianceTest, RowsDoNotDependOnTheOthersOfTheCall) {
  ExpectRowsDoNotDependOnOthers(AllKernels(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(DTypes, InvarianceTest,
                         testing::Values(DType::kF32, DType::kF16, DType::kBF16),
                         [](const auto& param) { return std::string(Name(param.param)); });

}  // namespace
}  // namespace lockstep::invariance
