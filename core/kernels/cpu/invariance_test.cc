// What rules of core/kernels/cpu promise beyond correct values: the bits of a result depend on its
// operands alone, not on the number of threads, on the instructions that are used, or on how many
// rows a call has.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/base/parallel.h"
#include "core/base/philox.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

// Rows enough for several leaves of 128, so that threads take different runs of them, and widths
// that leave tails behind 16 lanes.
constexpr int64_t kBatch = 5, kTime = 127, kWidth = 76;
constexpr int64_t kClasses = 203, kVocabulary = 50;
constexpr int64_t kHeads = 3, kHeadWidth = 20;

// Makes operands, and remembers what kernels have written.
class Bench {
 public:
  Bench(InstructionSet instructions, DType dtype) : kernels_(allocator_, instructions) {
    dtype_ = dtype;
  }

  CpuKernels& kernels() { return kernels_; }

  Tensor Normal(const Shape& shape, const std::string& name) { return Normal(shape, name, dtype_); }
  Tensor Normal(const Shape& shape, const std::string& name, DType dtype) {
    const Tensor drawn = kernels_.Empty(shape);
    Philox(PhiloxKey(1, "test", name))
        .FillNormal({drawn.data<float>(), static_cast<size_t>(drawn.elements())}, 0, 0.1f, 1);
    if (dtype == DType::kF32) return drawn;
    const Tensor rounded = kernels_.Empty(shape, dtype, MemoryClass::kActivations);
    kernels_.Cast(drawn, rounded);
    return rounded;
  }
  Tensor Integers(int64_t count, int32_t end, const std::string& name) {
    std::vector<uint32_t> bits(count);
    Philox(PhiloxKey(1, "test", name)).FillBits(bits, 0);
    const Tensor x = kernels_.Empty({count}, DType::kI32, MemoryClass::kActivations);
    // Some negative: ignored targets, words of other ranks.
    for (int64_t i = 0; i < count; ++i) {
      x.data<int32_t>()[i] = i % 11 == 5 ? -1 : static_cast<int32_t>(bits[i] % end);
    }
    return x;
  }
  Tensor Floats(const Shape& shape) { return Out(shape, DType::kF32); }
  Tensor Out(const Shape& shape) { return Out(shape, dtype_); }
  Tensor Out(const Shape& shape, DType dtype) {
    outputs_.push_back(kernels_.Empty(shape, dtype, MemoryClass::kActivations));
    return outputs_.back();
  }
  // An output that holds something before it is added to.
  Tensor Held(const Shape& shape, const std::string& name, DType dtype) {
    outputs_.push_back(Normal(shape, name, dtype));
    return outputs_.back();
  }

  // The bytes of all outputs, of the first `batch` of `whole` samples: each output has samples, or
  // their rows, in its first dimension.
  std::string Bytes(int64_t batch = 1, int64_t whole = 1) const {
    std::string bytes;
    for (const Tensor& x : outputs_) {
      bytes.append(reinterpret_cast<const char*>(x.raw()), x.bytes() / whole * batch);
    }
    return bytes;
  }

 private:
  CpuAllocator allocator_;
  CpuKernels kernels_;
  DType dtype_ = DType::kF32;
  std::vector<Tensor> outputs_;
};

struct NamedKernel {
  std::string name;
  // Calls the kernel on the first `batch` samples.
  std::function<void(Bench&, int64_t batch)> run;
  // Whether an element of its outputs depends on one sample alone.
  bool by_row = true;
};

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
  add("AddPositions", true, [](Bench& b, int64_t batch) {
    b.kernels().AddPositions(b.Normal({batch, kTime, kWidth}, "x"),
                             b.Normal({kTime + 3, kWidth}, "table"), b.Out({batch, kTime, kWidth}));
  });
  for (const float dropout : {0.0f, 0.25f}) {
    const Attention attention = {.heads = kHeads,
                                 .head_width = kHeadWidth,
                                 .dropout = {.probability = dropout, .key = 3, .counter = 5},
                                 .total_heads = kHeads};
    add("Attention", true, [attention](Bench& b, int64_t batch) {
      const Tensor qkv = b.Normal({batch, kTime, 3 * kHeads * kHeadWidth}, "qkv");
      const Tensor y = b.Out({batch, kTime, kHeads * kHeadWidth});
      const Tensor log_sum_exp = b.Floats({batch, kHeads, kTime});
      b.kernels().AttentionForward(attention, qkv, y, log_sum_exp);
      b.kernels().AttentionBackward(attention, qkv, y, log_sum_exp,
                                    b.Normal({batch, kTime, kHeads * kHeadWidth}, "dy"),
                                    b.Out({batch, kTime, 3 * kHeads * kHeadWidth}));
    });
  }
  add("SoftmaxCrossEntropy", true, [](Bench& b, int64_t batch) {
    const int64_t rows = batch * kTime;
    b.kernels().SoftmaxCrossEntropy(b.Normal({rows, kClasses}, "logits"),
                                    b.Integers(rows, kClasses, "targets"), 0.01f, b.Floats({rows}),
                                    b.Out({rows, kClasses}));
    b.kernels().SoftmaxCrossEntropy(b.Normal({rows, kClasses}, "logits"),
                                    b.Integers(rows, kClasses, "targets"), 0.01f, b.Floats({rows}),
                                    Tensor());
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
  add("AdamWStep", true, [](Bench& b, int64_t batch) {
    const Shape shape = Rows(batch, kWidth);
    const Tensor parameter = b.Held(shape, "parameter", DType::kF32);
    const Tensor first = b.Held(shape, "first", DType::kF32), second = b.Floats(shape);
    b.kernels().Multiply(first, first, second);
    b.kernels().AdamWStep({.weight_decay = 0.1f, .step = 17}, 0.5f,
                          {{.gradient = b.Normal(shape, "gradient"),
                            .parameter = parameter,
                            .copy = b.Out(shape),
                            .states = {first, second}}});
  });
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

std::string Results(const NamedKernel& kernel, DType dtype, int threads,
                    InstructionSet instructions, int64_t batch = kBatch) {
  SetThreads(threads);
  Bench bench(instructions, dtype);
  kernel.run(bench, batch);
  return bench.Bytes();
}

class InvarianceTest : public testing::TestWithParam<DType> {
 protected:
  ~InvarianceTest() override { SetThreads(threads_before_); }

 private:
  const int threads_before_ = MaxThreads();
};

TEST_P(InvarianceTest, ThreadsAndInstructionsDoNotMatter) {
  for (const NamedKernel& kernel : AllKernels()) {
    const std::string expected = Results(kernel, GetParam(), 1, WidestInstructionSet());
    EXPECT_FALSE(expected.empty());
    for (const int threads : {1, 2, 3, 5}) {
      for (const InstructionSet set : {WidestInstructionSet(), InstructionSet::kAvx2}) {
        EXPECT_TRUE(Results(kernel, GetParam(), threads, set) == expected)
            << kernel.name << " on " << threads << " threads with " << Name(set);
      }
    }
  }
}

TEST_P(InvarianceTest, RowsDoNotDependOnTheOthersOfTheCall) {
  SetThreads(2);
  for (const NamedKernel& kernel : AllKernels()) {
    if (!kernel.by_row) continue;
    Bench whole(WidestInstructionSet(), GetParam());
    kernel.run(whole, kBatch);
    for (const int64_t batch : {1, 2, 4}) {
      Bench some(WidestInstructionSet(), GetParam());
      kernel.run(some, batch);
      EXPECT_TRUE(some.Bytes() == whole.Bytes(batch, kBatch)) << kernel.name << " of " << batch;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, InvarianceTest,
                         testing::Values(DType::kF32, DType::kF16, DType::kBF16),
                         [](const auto& param) { return std::string(Name(param.param)); });

}  // namespace
}  // namespace lockstep
