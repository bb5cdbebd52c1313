// How often kernels read what they are given, which the emulation counts.

#include <cstdint>
#include <memory>

#include "core/cuda/allocator.h"
#include "core/cuda/context.h"
#include "core/cuda/emulation/reads.h"
#include "core/kernels/cuda/cuda_kernels.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using emulation::ReadCounter;

TEST(TrafficTest, LayerNormBackwardReadsItsInputsOnce) {
  const std::unique_ptr<CudaContext> context = CudaContext::Create(0).value();
  CudaAllocator allocator(*context);
  CudaKernels kernels(*context, allocator);
  constexpr int64_t kRows = 20;
  for (const int64_t width : {256, 768, 1024, 2048}) {  // whole segments: none is loaded twice
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      if (width > 1024 && dtype == DType::kF32) continue;  // no registers for so wide rows
      const Shape shape = {kRows, width};
      const Tensor x = kernels.Empty(shape, dtype), dy = kernels.Empty(shape, dtype);
      const Tensor scale = kernels.Empty({width}, dtype), dx = kernels.Empty(shape, dtype);
      const Tensor mean = kernels.Empty({kRows}), inverse = kernels.Empty({kRows});
      const Tensor dscale = kernels.Empty({width}), dshift = kernels.Empty({width});
      for (const Tensor& one : {x, dy, scale, mean, inverse}) kernels.Fill(one, 1);
      for (const Tensor& input : {x, dy}) {
        context->Synchronize();
        const ReadCounter read(input.raw(), static_cast<size_t>(input.bytes()));
        kernels.LayerNormBackward(x, scale, mean, inverse, dy, Tensor(), dx, Write::kOverwrite,
                                  dscale, dshift);
        context->Synchronize();
        EXPECT_EQ(read.bytes(), input.bytes()) << width << " " << Name(dtype);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
