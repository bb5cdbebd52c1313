// The suite of all backends in all dtypes, and what the GPU promises beyond it.

#include "core/kernels/cuda/cuda_kernels.h"

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/philox.h"
#include "core/base/testing/captured_log.h"
#include "core/cuda/allocator.h"
#include "core/cuda/context.h"
#include "core/kernels/cuda/attention_sdpa.h"
#include "core/kernels/kernels_suite.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

// Memory of a context of its own, which it keeps. Fills it with NaN of every width before it hands
// it out: a kernel that reads what nobody wrote, its own scratch included, shows.
class PoisonedAllocator final : public Allocator {
 public:
  PoisonedAllocator() : context_(CudaContext::Create(0).value()), allocator_(*context_) {}

  CudaContext& context() { return *context_; }
  Device device() const override { return allocator_.device(); }

 protected:
  void* AllocateBlock(int64_t bytes) override {
    return Poisoned(bytes, FirstUse::kKernels, context_->stream());
  }
  void* AllocateUploadBlock(int64_t bytes) override {
    return Poisoned(bytes, FirstUse::kUpload, context_->copy_stream());
  }
  void FreeBlock(void* block, int64_t bytes) override {
    allocator_.Free(block, bytes, MemoryClass::kWorkspace);
  }

 private:
  // Memory that is used first on the stream.
  void* Poisoned(int64_t bytes, FirstUse first_use, cudaStream_t stream) {
    void* const block = allocator_.Allocate(bytes, MemoryClass::kWorkspace, first_use);
    cudaMemsetAsync(block, 0xff, static_cast<size_t>(bytes), stream);
    return block;
  }

  const std::unique_ptr<CudaContext> context_;
  CudaAllocator allocator_;
};

KernelsBackend Computing(const char* name, DType dtype) {
  return {.name = name,
          .make_allocator = [] { return std::make_unique<PoisonedAllocator>(); },
          .make_kernels =
              [](Allocator& allocator) {
                auto& poisoned = dynamic_cast<PoisonedAllocator&>(allocator);
                return std::make_unique<CudaKernels>(poisoned.context(), allocator);
              },
          .dtype = dtype,
          .batch_norm_of_library = true};
}

INSTANTIATE_TEST_SUITE_P(Cuda, KernelsSuite,
                         testing::Values(Computing("F32", DType::kF32),
                                         Computing("F16", DType::kF16),
                                         Computing("BF16", DType::kBF16)),
                         testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(Cuda, KernelsSuite16,
                         testing::Values(Computing("F16", DType::kF16),
                                         Computing("BF16", DType::kBF16)),
                         testing::PrintToStringParamName());

TEST(CudaKernelsTest, WorkspaceIsBookedAndGivenBack) {
  const std::unique_ptr<CudaContext> context = CudaContext::Create(0).value();
  CudaAllocator allocator(*context);
  CudaKernels kernels(*context, allocator);
  const Tensor x = kernels.Empty({100, 64}), sums = kernels.Empty({64});
  kernels.Fill(x, 1);
  kernels.ColumnSums(x, Write::kOverwrite, sums);
  EXPECT_GT(allocator.books().peak(MemoryClass::kWorkspace), 0);
  EXPECT_EQ(allocator.books().live(MemoryClass::kWorkspace), 0);
}

// Asked for cuDNN's attention, the kernels give our own's numbers within the dtype's precision, and
// the same bits again; where there is no such cuDNN, our own's bits.
class CudnnAttentionTest : public testing::TestWithParam<DType> {
 protected:
  static constexpr int64_t kBatch = 2, kTime = 65, kHeads = 2, kKeyHeads = 1, kWidth = 64;

  // y, the log-sum-exp and the gradient, in fp32.
  std::vector<std::vector<float>> Attend(AttentionKernels by) {
    CudaKernels kernels(*context_, allocator_, Fp32Products::kFp32, ProductShapes::kDivided, by);
    Attention attention;
    attention.heads = attention.total_heads = kHeads;
    attention.key_heads = kKeyHeads;
    attention.head_width = kWidth;
    const auto random = [&](int64_t width, uint64_t key) {
      std::vector<float> values(static_cast<size_t>(kBatch * kTime * width));
      Philox(key).FillUniform(values, 0, 0, -1, 1);
      const Tensor wide = kernels.Empty({kBatch, kTime, width});
      const Tensor x = kernels.Empty(wide.shape(), GetParam());
      kernels.CopyFromHost(values.data(), wide);
      kernels.Cast(wide, x);
      return x;
    };
    const Tensor qkv = random(attention.packed_width(), 1);
    const Tensor dy = random(attention.query_width(), 2);
    const Tensor y = kernels.EmptyLike(dy), dqkv = kernels.EmptyLike(qkv);
    const Tensor log_sum_exp = kernels.Empty({kBatch, kHeads, kTime});
    kernels.AttentionForward(attention, qkv, y, log_sum_exp);
    kernels.AttentionBackward(attention, qkv, y, log_sum_exp, dy, dqkv);
    std::vector<std::vector<float>> results;
    for (const Tensor& x : {y, log_sum_exp, dqkv}) {
      const Tensor wide = kernels.Empty(x.shape());
      kernels.Cast(x, wide);
      kernels.CopyToHost(wide, results.emplace_back(static_cast<size_t>(x.elements())).data());
    }
    return results;
  }

  const std::unique_ptr<CudaContext> context_ = CudaContext::Create(0).value();
  CudaAllocator allocator_{*context_};
};

INSTANTIATE_TEST_SUITE_P(Dtypes, CudnnAttentionTest, testing::Values(DType::kF16, DType::kBF16),
                         [](const auto& dtype) { return std::string(Name(dtype.param)); });

TEST_P(CudnnAttentionTest, AgreesWithOurOwnAndRepeatsItsBits) {
  const auto own = Attend(AttentionKernels::kOwn);
  const CapturedLog log;
  const auto first = Attend(AttentionKernels::kCudnn);
  if (cuda::IsBuiltWithCudnnFrontend()) {
    EXPECT_THAT(log.lines(), testing::IsEmpty());  // cuDNN refuses nothing
  } else {
    EXPECT_THAT(log.lines(), testing::ElementsAre(testing::HasSubstr("forward"),
                                                  testing::HasSubstr("backward")));
    EXPECT_EQ(first, own);
  }
  EXPECT_EQ(first, Attend(AttentionKernels::kCudnn));
  const double unit = GetParam() == DType::kF16 ? 0x1p-10 : 0x1p-7;
  for (size_t i = 0; i < own.size(); ++i) {
    EXPECT_THAT(first[i],
                testing::Pointwise(testing::FloatNear(static_cast<float>(16 * unit)), own[i]));
  }
}

// Products of the sizes that models train with, for which libraries have other kernels than for
// small ones: what is added to a product is added to its sums, and rounded once. Sums in fp32 and a
// kernel of ours for the rest say what is expected; where the orders of two sums differ, hardly any
// element rounds differently.
class LargeProductTest : public testing::TestWithParam<std::tuple<DType, ProductShapes>> {
 protected:
  static constexpr int64_t kRows = 1024, kIn = 768, kOut = 640;

  Tensor Random(const Shape& shape, float most) {
    std::vector<float> values(static_cast<size_t>(shape.elements()));
    Philox(++key_).FillUniform(values, 0, 0, -most, most);
    const Tensor wide = kernels_.Empty(shape), x = kernels_.Empty(shape, std::get<0>(GetParam()));
    kernels_.CopyFromHost(values.data(), wide);
    kernels_.Cast(wide, x);
    return x;
  }
  std::vector<uint16_t> Bits(const Tensor& x) {
    std::vector<uint16_t> bits(static_cast<size_t>(x.elements()));
    kernels_.CopyToHost(x, bits.data());
    return bits;
  }
  // In percent of all elements.
  double Differing(const Tensor& x, const Tensor& y) {
    const std::vector<uint16_t> a = Bits(x), b = Bits(y);
    int differing = 0;
    for (size_t i = 0; i < a.size(); ++i) differing += a[i] != b[i] ? 1 : 0;
    return 100.0 * differing / static_cast<double>(a.size());
  }

  const std::unique_ptr<CudaContext> context_ = CudaContext::Create(0).value();
  CudaAllocator allocator_{*context_};
  CudaKernels kernels_{*context_, allocator_, Fp32Products::kFp32, std::get<1>(GetParam())};
  uint64_t key_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Dtypes, LargeProductTest,
                         testing::Combine(testing::Values(DType::kF16, DType::kBF16),
                                          testing::Values(ProductShapes::kDivided,
                                                          ProductShapes::kSame)),
                         [](const auto& how) {
                           const bool same = std::get<1>(how.param) == ProductShapes::kSame;
                           return std::string(Name(std::get<0>(how.param))) +
                                  (same ? "_same" : "_divided");
                         });

TEST_P(LargeProductTest, IsRoundedOnce) {
  const Tensor x = Random({kRows, kIn}, 1), w = Random({kOut, kIn}, 1);
  const Tensor bias = Random({kOut}, 8), residual = Random({kRows, kOut}, 8);
  const Tensor sums = kernels_.Empty({kRows, kOut});
  kernels_.MatMul(x, Transpose::kNo, w, Transpose::kYes, Write::kOverwrite, sums);
  const Tensor expected = kernels_.EmptyLike(residual), y = kernels_.EmptyLike(residual);
  for (const Tensor& b : {Tensor(), bias}) {
    for (const Tensor& r : {Tensor(), residual}) {
      kernels_.AddBias(sums, b, r, expected);
      kernels_.Linear(x, w, b, r, y);
      EXPECT_LT(Differing(y, expected), 1) << b.defined() << r.defined();
    }
  }
  kernels_.AddBias(sums, Tensor(), residual, expected);
  kernels_.Copy(residual, y);
  kernels_.Linear(x, w, Tensor(), y, y);
  EXPECT_LT(Differing(y, expected), 1) << "in place";
  kernels_.Copy(residual, y);
  kernels_.MatMul(x, Transpose::kNo, w, Transpose::kYes, Write::kAccumulate, y);
  EXPECT_LT(Differing(y, expected), 1) << "accumulated";
}

// The gradients of a layer, in 16 bits and in fp32, among them a bias's that the library may sum
// beside the weight's.
TEST_P(LargeProductTest, ItsGradientsAreRoundedOnce) {
  const Tensor x = Random({kRows, kIn}, 1), dy = Random({kRows, kOut}, 1);
  const Tensor w = Random({kOut, kIn}, 1);
  const Tensor sums = kernels_.Empty(w.shape()), bias_sums = kernels_.Empty({kOut});
  kernels_.MatMul(dy, Transpose::kYes, x, Transpose::kNo, Write::kOverwrite, sums);
  kernels_.ColumnSums(dy, Write::kOverwrite, bias_sums);
  const Tensor expected = kernels_.EmptyLike(w), dw = kernels_.EmptyLike(w);
  const Tensor expected_bias = kernels_.Empty({kOut}, w.dtype());
  const Tensor dbias = kernels_.EmptyLike(expected_bias);
  kernels_.Cast(sums, expected);
  kernels_.Cast(bias_sums, expected_bias);
  kernels_.LinearBackward(dy, x, w, Write::kOverwrite, Tensor(), dw, dbias);
  EXPECT_LT(Differing(dw, expected), 1);
  EXPECT_LT(Differing(dbias, expected_bias), 1);
  // Twice in fp32: what is added is the same again.
  const Tensor wide = kernels_.Empty(w.shape()), wide_bias = kernels_.Empty({kOut});
  kernels_.LinearBackward(dy, x, w, Write::kOverwrite, Tensor(), wide, wide_bias);
  kernels_.LinearBackward(dy, x, w, Write::kAccumulate, Tensor(), wide, wide_bias);
  kernels_.Scale(wide, 0.5, wide);
  kernels_.Scale(wide_bias, 0.5, wide_bias);
  kernels_.Cast(wide, dw);
  kernels_.Cast(wide_bias, dbias);
  EXPECT_LT(Differing(dw, expected), 1) << "added up in fp32";
  EXPECT_LT(Differing(dbias, expected_bias), 1) << "added up in fp32";
}

TEST_P(LargeProductTest, WithGeluIsRoundedOnce) {
  const Tensor x = Random({kRows, kIn}, 0.1f), up = Random({kOut, kIn}, 1);
  const Tensor bias = Random({kOut}, 1), down = Random({kIn, kOut}, 0.1f);
  const Tensor sums = kernels_.Empty({kRows, kOut}), wide = kernels_.Empty({kRows, kOut});
  kernels_.MatMul(x, Transpose::kNo, up, Transpose::kYes, Write::kOverwrite, sums);
  kernels_.AddBias(sums, bias, Tensor(), sums);
  const Tensor pre = kernels_.Empty({kRows, kOut}, x.dtype()), expected = kernels_.EmptyLike(pre);
  const Tensor y = kernels_.EmptyLike(x);
  kernels_.GeluMlp(x, up, bias, down, Tensor(), Tensor(), pre, y);
  kernels_.Cast(sums, expected);
  EXPECT_LT(Differing(pre, expected), 1);
}

// Some rows or columns of a product have the bits that they have among all.
class PartsOfProductsTest : public testing::TestWithParam<DType> {
 protected:
  // A matrix, of which a part of the rows or the columns may be taken.
  Tensor Random(const Shape& shape) {
    std::vector<float> values(static_cast<size_t>(shape.elements()));
    Philox(++key_).FillUniform(values, 0, 0, -1, 1);
    const Tensor wide = kernels_.Empty(shape), x = kernels_.Empty(shape, GetParam());
    kernels_.CopyFromHost(values.data(), wide);
    kernels_.Cast(wide, x);
    return x;
  }
  Tensor Columns(const Tensor& x, int64_t first, int64_t count) {
    Tensor y = kernels_.Empty({x.shape()[0], count}, x.dtype());
    kernels_.CopyColumns(x, first, count, y, 0);
    return y;
  }
  // By way of the host: no view begins at some rows.
  Tensor Rows(const Tensor& x, int64_t first, int64_t count) {
    Tensor y = kernels_.Empty({count, x.shape()[1]}, x.dtype());
    std::vector<char> bytes(static_cast<size_t>(x.bytes()));
    kernels_.CopyToHost(x, bytes.data());
    kernels_.CopyFromHost(bytes.data() + first * x.shape()[1] * SizeOf(x.dtype()), y);
    return y;
  }
  // op(a) op(b).
  Tensor Product(const Tensor& a, Transpose turned_a, const Tensor& b, Transpose turned_b,
                 DType dtype) {
    Tensor c = kernels_.Empty({a.shape()[turned_a == Transpose::kYes ? 1 : 0],
                               b.shape()[turned_b == Transpose::kYes ? 0 : 1]},
                              dtype);
    kernels_.MatMul(a, turned_a, b, turned_b, Write::kOverwrite, c);
    return c;
  }
  bool AreTheSame(const Tensor& x, const Tensor& y) {
    std::vector<std::vector<char>> bytes;
    for (const Tensor& tensor : {x, y}) {
      kernels_.CopyToHost(tensor, bytes.emplace_back(static_cast<size_t>(x.bytes())).data());
    }
    return bytes[0] == bytes[1];
  }

  const std::unique_ptr<CudaContext> context_ = CudaContext::Create(0).value();
  CudaAllocator allocator_{*context_};
  CudaKernels kernels_{*context_, allocator_};
  uint64_t key_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Dtypes, PartsOfProductsTest,
                         testing::Values(DType::kF32, DType::kF16, DType::kBF16),
                         [](const auto& dtype) { return std::string(Name(dtype.param)); });

TEST_P(PartsOfProductsTest, HaveTheBitsOfTheWhole) {
  struct {
    int64_t m, n, k;
  } const shapes[] = {{16, 16, 16},    {32, 48, 512},    {1024, 768, 640},
                      {64, 3072, 768}, {256, 256, 4096}, {2048, 64, 96}};
  for (const auto& [m, n, k] : shapes) {
    for (const Transpose turned_a : {Transpose::kNo, Transpose::kYes}) {
      for (const Transpose turned_b : {Transpose::kNo, Transpose::kYes}) {
        SCOPED_TRACE(testing::Message()
                     << m << " x " << n << " x " << k << ", turned " << static_cast<int>(turned_a)
                     << static_cast<int>(turned_b));
        const bool a_turned = turned_a == Transpose::kYes, b_turned = turned_b == Transpose::kYes;
        const Tensor a = Random(a_turned ? Shape{k, m} : Shape{m, k});
        const Tensor b = Random(b_turned ? Shape{n, k} : Shape{k, n});
        for (const DType dtype : std::set{GetParam(), DType::kF32}) {
          const Tensor c = Product(a, turned_a, b, turned_b, dtype);
          for (const int64_t rows : {int64_t{1}, int64_t{3}, m / 4, m / 2}) {
            if (a_turned && rows % 8 != 0) continue;  // aligned otherwise than all are
            const Tensor some_a = a_turned ? Columns(a, m - rows, rows) : Rows(a, m - rows, rows);
            EXPECT_TRUE(
                AreTheSame(Product(some_a, turned_a, b, turned_b, dtype), Rows(c, m - rows, rows)))
                << rows << " rows of " << Name(dtype);
          }
          for (const int64_t columns : {n / 4, n / 2}) {
            if (columns % 8 != 0) continue;
            const Tensor some_b =
                b_turned ? Rows(b, n - columns, columns) : Columns(b, n - columns, columns);
            EXPECT_TRUE(AreTheSame(Product(a, turned_a, some_b, turned_b, dtype),
                                   Columns(c, n - columns, columns)))
                << columns << " columns of " << Name(dtype);
          }
        }
      }
    }
  }
}

// Layers, whose biases and GELU are epilogues, for a part of the rows.
TEST_P(PartsOfProductsTest, OfLayersHaveTheBitsOfTheWhole) {
  constexpr int64_t kRows = 64, kWidth = 96, kHidden = 384;
  const Tensor x = Random({kRows, kWidth}), up = Random({kHidden, kWidth});
  const Tensor down = Random({kWidth, kHidden}), residual = Random({kRows, kWidth});
  const Tensor up_bias = Random({kHidden}), down_bias = Random({kWidth});
  struct Results {
    Tensor pre, y, dx;
  };
  const auto compute = [&](int64_t rows) {
    const auto last = [&](const Tensor& all) { return Rows(all, kRows - rows, rows); };
    Results results = {kernels_.Empty({rows, kHidden}, GetParam()),
                       kernels_.Empty({rows, kWidth}, GetParam()),
                       kernels_.Empty({rows, kWidth}, GetParam())};
    kernels_.GeluMlp(last(x), up, up_bias, down, down_bias, last(residual), results.pre, results.y);
    const Kernels::GeluMlpGradients gradients = {results.dx, {}, {}, {}, {}};
    kernels_.GeluMlpBackward(last(x), results.pre, up, down, last(residual), Write::kOverwrite,
                             gradients);
    return results;
  };
  const Results all = compute(kRows);
  for (const int64_t rows : {1, 3, 16, 32}) {
    SCOPED_TRACE(rows);
    const Results some = compute(rows);
    EXPECT_TRUE(AreTheSame(some.pre, Rows(all.pre, kRows - rows, rows)));
    EXPECT_TRUE(AreTheSame(some.y, Rows(all.y, kRows - rows, rows)));
    EXPECT_TRUE(AreTheSame(some.dx, Rows(all.dx, kRows - rows, rows)));
  }
}

// An index of 32 bits would wrap around. The table takes 4 GiB.
TEST(CudaKernelsTest, EmbeddingOfATableOfMoreThan2To31Elements) {
  constexpr int64_t kWidth = 4096, kWords = (int64_t{1} << 31) / kWidth + 1;
  constexpr uint16_t kThree = 0x4040;  // 3 in bf16
  const std::unique_ptr<CudaContext> context = CudaContext::Create(0).value();
  CudaAllocator allocator(*context);
  CudaKernels kernels(*context, allocator);
  const Tensor table = kernels.Empty({kWords, kWidth}, DType::kBF16);
  const Tensor y = kernels.Empty({1, kWidth}, DType::kBF16);
  const Tensor ids = kernels.Empty({1}, DType::kI32);
  const int32_t last = kWords - 1;
  kernels.Fill(table.View(last * kWidth, {kWidth}), 3);
  kernels.CopyFromHost(&last, ids);
  kernels.Embedding(ids, table, y);
  std::vector<uint16_t> word(kWidth);
  kernels.CopyToHost(y, word.data());
  EXPECT_THAT(word, testing::Each(kThree));
}

}  // namespace
}  // namespace lockstep
