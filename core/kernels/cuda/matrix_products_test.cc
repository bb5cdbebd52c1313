// Which of cuBLASLt's candidates a product takes, and sums beside products. The emulated cuBLASLt
// offers candidates whose times, bits and workspaces differ (core/cuda/emulation/cublaslt.cc): in
// percent of the first one's time, and with its bits unless something else is said,
//   150; 50 with other bits; 10 but not supported; 80; 20 in no fixed order; 30 rounded twice;
//   40 with more workspace; 60 with other bits where it is added to something.

#include "core/kernels/cuda/matrix_products.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/autograd/testing/arrays.h"
#include "core/base/testing/captured_log.h"
#include "core/base/testing/scoped_environment.h"
#include "core/cuda/allocator.h"
#include "core/cuda/context.h"
#include "core/cuda/emulation/reads.h"
#include "core/cuda/error.h"
#include "core/kernels/cuda/cuda_kernels.h"
#include "core/kernels/reference.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using cuda::Epilogue;
using cuda::MatrixProduct;
using cuda::MatrixProducts;
using cuda::ProductTrials;
using reference::Array;

constexpr int64_t kM = 24, kN = 16, kK = 200;
constexpr ProductTrials kAll = {.least_multiply_adds = 1};
constexpr ProductTrials kNone = {.least_multiply_adds = int64_t{1} << 60};

class MatrixProductsTest : public testing::Test {
 protected:
  Tensor Upload(const Array& x, DType dtype = DType::kF32) {
    const Tensor wide = lockstep::Upload(kernels_, x);
    if (dtype == DType::kF32) return wide;
    Tensor narrow = kernels_.Empty(x.shape, dtype);
    kernels_.Cast(wide, narrow);
    return narrow;
  }
  std::vector<double> Values(const Tensor& x) {
    const Tensor wide = kernels_.Empty(x.shape());
    kernels_.Cast(x, wide);
    return Download(kernels_, wide).value;
  }

  // a[m, k] b[k, n] of random numbers, without a result.
  MatrixProduct Random(DType dtype = DType::kF32) {
    return {.m = kM,
            .n = kN,
            .k = kK,
            .a = Upload(RandomArray({kM, kK}, 1), dtype),
            .b = Upload(RandomArray({kK, kN}, 2), dtype),
            .c = Tensor()};
  }
  MatrixProduct With(MatrixProduct product, const Tensor& c) {
    product.c = c;
    return product;
  }
  Tensor Result(DType dtype = DType::kF32) { return kernels_.Empty({kM, kN}, dtype); }

  // The time of the product in percent of what the first candidate would take.
  int64_t Percent(MatrixProducts& products, const MatrixProduct& p) {
    cudaEvent_t start = nullptr, end = nullptr;
    LS_CUDA(cudaEventCreateWithFlags(&start, cudaEventDefault));
    LS_CUDA(cudaEventCreateWithFlags(&end, cudaEventDefault));
    LS_CUDA(cudaEventRecord(start, context_->stream()));
    products.Run(allocator_, p);
    LS_CUDA(cudaEventRecord(end, context_->stream()));
    context_->Synchronize();
    float milliseconds = 0;
    LS_CUDA(cudaEventElapsedTime(&milliseconds, start, end));
    LS_CUDA(cudaEventDestroy(start));
    LS_CUDA(cudaEventDestroy(end));
    const auto all = static_cast<double>(1000 + p.m * p.n * p.k);
    return std::lround(milliseconds * 1e6 * 100 / all);
  }

  const std::unique_ptr<CudaContext> context_ = CudaContext::Create(0).value();
  CudaAllocator allocator_{*context_};
  CudaKernels kernels_{*context_, allocator_};
  MatrixProducts tried_{*context_, Fp32Products::kFp32, ProductShapes::kSame, kAll};
  MatrixProducts untried_{*context_, Fp32Products::kFp32, ProductShapes::kSame, kNone};
};

TEST_F(MatrixProductsTest, TheFastestWithTheSameBitsIsTakenAndNoneWithOtherBits) {
  const MatrixProduct p = With(Random(), Result());
  tried_.Run(allocator_, p);
  EXPECT_EQ(Percent(tried_, p), 80);  // not 50
  EXPECT_EQ(Percent(untried_, p), 100);
}

// Sums of small integers are the same in any order, so bits would let all candidates through.
TEST_F(MatrixProductsTest, OnlyDeterministicCandidatesWithTheFirstOnesWorkspaceAreTried) {
  MatrixProduct p = With(Random(), Result());
  kernels_.Fill(p.a, 1);
  kernels_.Fill(p.b, 1);
  tried_.Run(allocator_, p);
  EXPECT_EQ(Percent(tried_, p), 50);  // not 10, 20, 30 or 40
}

TEST_F(MatrixProductsTest, ResultsAreThoseOfTheFirstCandidateAlsoOfTheCallThatTries) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Epilogue epilogue : {Epilogue::kNone, Epilogue::kBias, Epilogue::kBiasAndGelu,
                                    Epilogue::kGeluSlope, Epilogue::kSumsOfA}) {
      SCOPED_TRACE(static_cast<int>(epilogue));
      MatrixProduct p = Random(dtype);
      p.epilogue = epilogue;
      const bool has_pre = epilogue == Epilogue::kBiasAndGelu || epilogue == Epilogue::kGeluSlope;
      if (epilogue == Epilogue::kBias || epilogue == Epilogue::kBiasAndGelu) {
        p.bias = Upload(RandomArray({kN}, 3), dtype);
      }
      if (epilogue == Epilogue::kNone) p.addend = Upload(RandomArray({kM, kN}, 4), dtype);
      std::vector<std::vector<double>> found;
      for (MatrixProducts* const products : {&untried_, &tried_, &tried_}) {
        if (has_pre) p.pre = Upload(RandomArray({kM, kN}, 5), dtype);
        if (epilogue == Epilogue::kSumsOfA) p.a_sums = kernels_.Empty({kM}, dtype);
        p.c = Result(dtype);
        products->Run(allocator_, p);
        std::vector<double> values = Values(p.c);
        for (const Tensor& other : {p.pre, p.a_sums}) {
          if (!other.defined()) continue;
          const std::vector<double> more = Values(other);
          values.insert(values.end(), more.begin(), more.end());
        }
        found.push_back(values);
      }
      EXPECT_EQ(found[1], found[0]);
      EXPECT_EQ(found[2], found[0]);
      // In 16 bits so few elements may not show another order.
      if (dtype == DType::kF32) {
        const bool is_added = epilogue == Epilogue::kNone || epilogue == Epilogue::kSumsOfA;
        EXPECT_EQ(Percent(tried_, p), is_added ? 80 : 60);
      }
    }
  }
}

TEST_F(MatrixProductsTest, AProductInPlaceIsAddedOnceAndTakesTheChoiceOfItsKind) {
  const Array start = RandomArray({kM, kN}, 3);
  const auto in_place = [&](MatrixProducts& products, int64_t percent) {
    MatrixProduct p = With(Random(), Upload(start));
    p.addend = p.c;
    EXPECT_EQ(Percent(products, p), percent);
    return Values(p.c);
  };
  const std::vector<double> expected = in_place(untried_, 100);
  EXPECT_EQ(in_place(tried_, 100), expected);
  // With another addend; and without one.
  MatrixProduct apart = With(Random(), Result());
  apart.addend = Upload(start);
  tried_.Run(allocator_, apart);
  EXPECT_EQ(in_place(tried_, 80), expected);
  MatrixProducts others(*context_, Fp32Products::kFp32, ProductShapes::kSame, kAll);
  others.Run(allocator_, With(Random(), Result()));
  EXPECT_EQ(in_place(others, 80), expected);
}

// The heuristic's algorithms for 24 x 16 begin sums where those for all shapes do, and those for
// 24 x 24 elsewhere: none of these has the bits.
TEST_F(MatrixProductsTest, OfDividedShapesTheBitsAreThoseOfAllShapes) {
  MatrixProducts products(*context_, Fp32Products::kFp32, ProductShapes::kDivided, kAll);
  const MatrixProduct alike = With(Random(), Result());
  products.Run(allocator_, alike);
  EXPECT_EQ(Percent(products, alike), 80);
  MatrixProduct other = Random();
  other.n = kM;
  other.b = Upload(RandomArray({kK, kM}, 2));
  other.c = kernels_.Empty({kM, kM});
  products.Run(allocator_, other);
  EXPECT_EQ(Percent(products, other), 100);
  const std::vector<double> found = Values(other.c);
  untried_.Run(allocator_, other);
  EXPECT_NE(Values(other.c), found) << "of the shape";
}

TEST_F(MatrixProductsTest, WhereAllShapesHaveNoAlgorithmThatServesTheLogSaysSoOnce) {
  MatrixProducts products(*context_, Fp32Products::kFp32, ProductShapes::kDivided, kNone);
  const CapturedLog log;
  for (const int64_t m : {kM, kM / 2}) {
    products.Run(allocator_, {.m = m,
                              .n = 1,
                              .k = kK,
                              .a = Upload(RandomArray({m, kK}, 1)),
                              .b = Upload(RandomArray({kK, 1}, 2)),
                              .c = kernels_.Empty({m, 1})});
  }
  EXPECT_THAT(log.lines(),
              testing::Contains(testing::HasSubstr("has some rows or columns")).Times(1));
}

TEST_F(MatrixProductsTest, ResultsThatTellNothingPutTheTrialOff) {
  for (const float value : {0.0f, INFINITY}) {
    MatrixProducts products(*context_, Fp32Products::kFp32, ProductShapes::kSame,
                            {.least_multiply_adds = 1, .most_calls = 3});
    MatrixProduct p = With(Random(), Result());
    const Tensor random = p.a;
    p.a = kernels_.EmptyLike(random);
    kernels_.Fill(p.a, value);
    products.Run(allocator_, p);
    EXPECT_EQ(Percent(products, p), 200) << "twice: it looked at the first candidate";
    p.a = random;
    products.Run(allocator_, p);
    EXPECT_EQ(Percent(products, p), 80);
  }
}

TEST_F(MatrixProductsTest, TrialsThatNeverTellEnd) {
  MatrixProducts products(*context_, Fp32Products::kFp32, ProductShapes::kSame,
                          {.least_multiply_adds = 1, .most_calls = 2});
  const MatrixProduct p = With(Random(), Result());
  kernels_.Fill(p.a, 0);
  for (int call = 0; call < 2; ++call) EXPECT_EQ(Percent(products, p), 200);
  EXPECT_EQ(Percent(products, p), 100);
}

TEST_F(MatrixProductsTest, TrialsBookNoMoreWorkspaceThanTheProduct) {
  const MatrixProduct p = With(Random(), Result());
  std::vector<int64_t> peaks;
  for (MatrixProducts* const products : {&untried_, &tried_}) {
    allocator_.ResetPeaks();
    products->Run(allocator_, p);
    peaks.push_back(allocator_.books().peak(MemoryClass::kWorkspace));
  }
  EXPECT_GT(peaks[0], 0);
  EXPECT_EQ(peaks[1], peaks[0]);
  EXPECT_EQ(allocator_.books().live(MemoryClass::kWorkspace), 0);
}

TEST_F(MatrixProductsTest, ProductsThatAreNotLargeAreNotTried) {
  MatrixProducts products(*context_, Fp32Products::kFp32, ProductShapes::kSame,
                          {.least_multiply_adds = kM * kN * kK + 1});
  const MatrixProduct p = With(Random(), Result());
  for (int call = 0; call < 2; ++call) EXPECT_EQ(Percent(products, p), 100);
}

// An expert has other rows in each step: its forward and input gradient other m, its weight's
// gradient another k.
TEST_F(MatrixProductsTest, OfShapesThatVaryTheFirstAloneAreTried) {
  for (const bool varies_in_m : {true, false}) {
    MatrixProducts products(*context_, Fp32Products::kFp32, ProductShapes::kSame,
                            {.least_multiply_adds = 1, .most_shapes = 3});
    std::vector<int64_t> percent;
    for (int64_t i = 0; i < 6; ++i) {
      const int64_t m = varies_in_m ? kM + i : kM, k = varies_in_m ? kK : kK + i;
      const MatrixProduct p = {.m = m,
                               .n = kN,
                               .k = k,
                               .a = Upload(RandomArray({m, k}, 1)),
                               .b = Upload(RandomArray({k, kN}, 2)),
                               .c = kernels_.Empty({m, kN})};
      products.Run(allocator_, p);
      percent.push_back(Percent(products, p));
    }
    EXPECT_THAT(percent, testing::ElementsAre(80, 80, 80, 100, 100, 100));
    // What was tried keeps its choice.
    const MatrixProduct first = With(Random(), Result());
    EXPECT_EQ(Percent(products, first), 80);
  }
}

// A bias's gradient beside the weight's, for layers of 24 -> 16 and 40 rows.
class BiasGradientsTest : public MatrixProductsTest {
 protected:
  static constexpr int64_t kRows = 40, kIn = 24, kOut = 16;

  struct Gradients {
    std::vector<double> dw, dbias;
    int64_t read;  // bytes of dy, by kernels of ours
  };
  Gradients Compute(ProductShapes shapes, DType dtype, DType gradient_dtype,
                    Write write = Write::kOverwrite) {
    CudaKernels kernels(*context_, allocator_, Fp32Products::kFp32, shapes);
    const Tensor dy = Upload(dy_, dtype), x = Upload(x_, dtype);
    const Tensor dw = Upload(dw_, gradient_dtype), dbias = Upload(dbias_, gradient_dtype);
    context_->Synchronize();
    const emulation::ReadCounter read(dy.raw(), static_cast<size_t>(dy.bytes()));
    kernels.LinearBackward(dy, x, kernels.EmptyLike(dw), write, Tensor(), dw, dbias);
    context_->Synchronize();
    return {Values(dw), Values(dbias), read.bytes()};
  }
  // What a rounding of the operands and results to bf16 leaves.
  void ExpectNear(const Array& expected, const std::vector<double>& found, double tolerance) {
    ASSERT_EQ(found.size(), expected.value.size());
    for (int64_t i = 0; i < expected.elements(); ++i) {
      EXPECT_NEAR(found[static_cast<size_t>(i)], expected[i], tolerance) << i;
    }
  }

  const Array dy_ = Rounded(RandomArray({kRows, kOut}, 1)),
              x_ = Rounded(RandomArray({kRows, kIn}, 2));
  const Array dw_ = RandomArray({kOut, kIn}, 3), dbias_ = RandomArray({kOut}, 4);
  const reference::LinearGradients expected_ =
      reference::LinearBackward(dy_, x_, Array(Shape{kOut, kIn}));

 private:
  // To numbers that bf16 holds.
  Array Rounded(const Array& x) { return Array(x.shape, Values(Upload(x, DType::kBF16))); }
};

TEST_F(BiasGradientsTest, TheLibrarysAreTheSumsAndReadNothingMore) {
  const Gradients found = Compute(ProductShapes::kSame, DType::kBF16, DType::kF32);
  EXPECT_EQ(found.read, 0);
  ExpectNear(expected_.dbias, found.dbias, 1e-5);
  ExpectNear(expected_.dw, found.dw, 1e-4);
}

TEST_F(BiasGradientsTest, TheLibrarysAreAddedToWhatIsThere) {
  const Gradients found =
      Compute(ProductShapes::kSame, DType::kBF16, DType::kF32, Write::kAccumulate);
  EXPECT_EQ(found.read, 0);
  reference::Result dbias = expected_.dbias, dw = expected_.dw;
  dbias.Add(dbias_);
  dw.Add(dw_);
  ExpectNear(dbias, found.dbias, 1e-5);
  ExpectNear(dw, found.dw, 1e-4);
}

TEST_F(BiasGradientsTest, TheOwnOrderStaysUnlessTheLibraryIsAskedFor) {
  EXPECT_GT(Compute(ProductShapes::kDivided, DType::kBF16, DType::kF32).read, 0);
  // In double for operands of fp32; and a sum of 16 bits is rounded once.
  EXPECT_GT(Compute(ProductShapes::kSame, DType::kF32, DType::kF32).read, 0);
  EXPECT_GT(Compute(ProductShapes::kSame, DType::kBF16, DType::kBF16, Write::kAccumulate).read, 0);
  EXPECT_EQ(Compute(ProductShapes::kSame, DType::kBF16, DType::kBF16).read, 0);
}

TEST_F(BiasGradientsTest, WhereCublasLtRefusesTheOwnSumsServe) {
  const Gradients own = Compute(ProductShapes::kDivided, DType::kBF16, DType::kF32);
  const ScopedEnvironment none("LOCKSTEP_EMULATED_CUBLASLT_BIAS_GRADIENTS", "0");
  const Gradients found = Compute(ProductShapes::kSame, DType::kBF16, DType::kF32);
  EXPECT_EQ(found.dbias, own.dbias);
  EXPECT_EQ(found.dw, own.dw);
  EXPECT_GT(found.read, 0);
}

TEST_F(BiasGradientsTest, BothHalvesOfAnMlpSumBesideTheProduct) {
  CudaKernels kernels(*context_, allocator_, Fp32Products::kFp32, ProductShapes::kSame);
  const Tensor x = Upload(x_, DType::kBF16),
               dy = Upload(RandomArray({kRows, kIn}, 5), DType::kBF16);
  const Tensor pre = Upload(RandomArray({kRows, kOut}, 6), DType::kBF16);
  const Tensor up = Upload(dw_, DType::kBF16), down = kernels_.Empty({kIn, kOut}, DType::kBF16);
  kernels_.Fill(down, 1);
  const Tensor up_bias = kernels_.Empty({kOut}), down_bias = kernels_.Empty({kIn});
  context_->Synchronize();
  const emulation::ReadCounter read(dy.raw(), static_cast<size_t>(dy.bytes()));
  kernels.GeluMlpBackward(
      x, pre, up, down, dy, Write::kOverwrite,
      {Tensor(), kernels_.Empty({kOut, kIn}), up_bias, kernels_.Empty({kIn, kOut}), down_bias});
  context_->Synchronize();
  EXPECT_EQ(read.bytes(), 0);
  ExpectNear(reference::ColumnSums(Array(Shape{kRows, kIn}, Values(dy))), Values(down_bias), 1e-5);
}

}  // namespace
}  // namespace lockstep
