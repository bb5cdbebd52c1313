// Layer normalisation's backward in one pass against the two passes that it stands for. What both
// compute, the suite of all backends compares with the double reference.

#include "core/kernels/cuda/layer_norm.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "core/cuda/allocator.h"
#include "core/cuda/context.h"
#include "core/cuda/error.h"
#include "core/kernels/cuda/column_sums.h"
#include "core/kernels/cuda/cuda_kernels.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

class LayerNormTest : public testing::Test {
 protected:
  // Numbers without a pattern in -1 to 1.
  Tensor Random(const Shape& shape, DType dtype, uint32_t seed) {
    std::vector<float> values(static_cast<size_t>(shape.elements()));
    for (float& value : values) {
      seed = seed * 1664525u + 1013904223u;
      value = static_cast<float>(seed >> 8) * 0x1p-23f - 1;
    }
    const Tensor wide = kernels_.Empty(shape);
    kernels_.CopyFromHost(values.data(), wide);
    Tensor x = kernels_.Empty(shape, dtype);
    kernels_.Cast(wide, x);
    return x;
  }
  template <typename T>
  std::vector<T> Read(const Tensor& x) {
    std::vector<T> values(static_cast<size_t>(x.bytes()) / sizeof(T));
    kernels_.CopyToHost(x, values.data());
    return values;
  }
  static cuda::Array Of(const Tensor& x) { return {x.raw(), x.dtype()}; }

  const std::unique_ptr<CudaContext> context_ = CudaContext::Create(0).value();
  CudaAllocator allocator_{*context_};
  CudaKernels kernels_{*context_, allocator_};
};

TEST_F(LayerNormTest, OnePassHasTheBitsOfTwo) {
  struct Case {
    int64_t rows, width;
    DType dtype;
  };
  // Rows narrower than a warp's, of several segments, one that only two passes have; chunks with
  // fewer rows than warps, and several chunks.
  for (const Case& c :
       {Case{3, 8, DType::kF32}, Case{700, 64, DType::kBF16}, Case{300, 128, DType::kF32},
        Case{300, 136, DType::kF16}, Case{5, 768, DType::kBF16}, Case{140, 1024, DType::kF32},
        Case{20, 1600, DType::kBF16}, Case{10, 2048, DType::kF16}, Case{10, 2056, DType::kBF16},
        Case{200, 100, DType::kF32}}) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.width << " " << Name(c.dtype));
    const Shape shape = {c.rows, c.width};
    const Tensor x = Random(shape, c.dtype, 1), dy = Random(shape, c.dtype, 2);
    const Tensor scale = Random({c.width}, c.dtype, 3), residual = Random(shape, c.dtype, 4);
    const Tensor mean = Random({c.rows}, DType::kF32, 5),
                 inverse = Random({c.rows}, DType::kF32, 6);
    const cuda::LayerNormInputs inputs = {.rows = c.rows,
                                          .width = c.width,
                                          .x = Of(x),
                                          .scale = Of(scale),
                                          .mean = mean.data<float>(),
                                          .inverse_stddev = inverse.data<float>(),
                                          .dy = Of(dy)};
    const Tensor scratch = kernels_.Empty({cuda::ColumnScratch(c.width)}, DType::kF64);
    const Tensor sums = kernels_.Empty({2, c.width}, DType::kF64);
    const Tensor one_pass = kernels_.Empty({2, c.width}, DType::kF64);
    for (const cuda::Array& addend : {cuda::Array{}, Of(residual)}) {
      const Tensor dx = kernels_.Empty(shape, c.dtype), one_dx = kernels_.Empty(shape, c.dtype);
      LS_CUDA(cuda::LayerNormInputGradient(context_->stream(), inputs, addend, Of(dx)));
      LS_CUDA(cuda::LayerNormSums(context_->stream(), inputs, scratch.data<double>(),
                                  sums.data<double>()));
      LS_CUDA(cuda::LayerNormGradients(context_->stream(), inputs, addend, Of(one_dx),
                                       scratch.data<double>(), one_pass.data<double>()));
      EXPECT_EQ(Read<uint16_t>(one_dx), Read<uint16_t>(dx));
      EXPECT_EQ(Read<uint64_t>(one_pass), Read<uint64_t>(sums));
    }
  }
}

// Each operand in turn has another dtype than x.
TEST_F(LayerNormTest, OperandsOfAnotherDtypeAreRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Shape shape = {3, 8};
  const Tensor x = Random(shape, DType::kBF16, 1), wide = Random(shape, DType::kF32, 1);
  const Tensor scale = Random({8}, DType::kBF16, 2), wide_scale = Random({8}, DType::kF32, 2);
  const Tensor mean = Random({3}, DType::kF32, 3), inverse = Random({3}, DType::kF32, 4);
  const auto forward = [&](const Tensor& gamma, const Tensor& beta, const Tensor& y) {
    kernels_.LayerNorm(x, gamma, beta, 1e-5f, y, mean, inverse);
  };
  EXPECT_DEATH(forward(wide_scale, scale, x), "f32 beside bf16");
  EXPECT_DEATH(forward(scale, wide_scale, x), "f32 beside bf16");
  EXPECT_DEATH(forward(scale, scale, wide), "f32 beside bf16");
  const auto backward = [&](const Tensor& gamma, const Tensor& dy, const Tensor& residual,
                            const Tensor& dx) {
    kernels_.LayerNormBackward(x, gamma, mean, inverse, dy, residual, dx, Write::kOverwrite,
                               Tensor(), Tensor());
  };
  EXPECT_DEATH(backward(wide_scale, x, Tensor(), x), "f32 beside bf16");
  EXPECT_DEATH(backward(scale, wide, Tensor(), x), "f32 beside bf16");
  EXPECT_DEATH(backward(scale, x, wide, x), "f32 beside bf16");
  EXPECT_DEATH(backward(scale, x, Tensor(), wide), "f32 beside bf16");
}

}  // namespace
}  // namespace lockstep
