#include "tools/bench/gpu_limits.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "core/base/clock.h"
#include "core/base/philox.h"
#include "core/base/status.h"
#include "core/cuda/allocator.h"
#include "core/cuda/context.h"
#include "core/kernels/cuda/cuda_kernels.h"

namespace lockstep {
namespace {

constexpr int kCalls = 20;
constexpr int kAttempts = 5;

// Seconds of one call among many in a row, the best of several attempts.
double Time(const CudaContext& context, const std::function<void()>& call) {
  double best = 1e9;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    call();  // warms up
    context.Synchronize();
    const int64_t start = NowNanos();
    for (int i = 0; i < kCalls; ++i) call();
    context.Synchronize();
    best = std::min(best, SecondsSince(start) / kCalls);
  }
  return best;
}

// Seconds that the host needs for one call, where the GPU has nothing else to do.
double HostTime(const CudaContext& context, const std::function<void()>& call) {
  double best = 1e9;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    context.Synchronize();
    const int64_t start = NowNanos();
    call();
    best = std::min(best, SecondsSince(start));
  }
  context.Synchronize();
  return best;
}

}  // namespace

absl::StatusOr<GpuLimits> MeasureGpuLimits() try {
  LS_ASSIGN_OR_RETURN(const std::unique_ptr<CudaContext> context, CudaContext::Create(0));
  CudaAllocator allocator(*context);
  CudaKernels kernels(*context, allocator, Fp32Products::kFp32, ProductShapes::kSame);
  GpuLimits limits;
  {
    constexpr int64_t n = 8192;
    const Tensor x = kernels.Empty({n, n}, DType::kBF16), w = kernels.Empty({n, n}, DType::kBF16);
    const Tensor y = kernels.Empty({n, n}, DType::kBF16);
    // Random numbers: zeros cost less power, and run at a higher clock.
    std::vector<float> values(n * n);
    Philox(PhiloxKey(1, "bench", "matrix")).FillNormal(values, 0, 0, 1);
    const Tensor full = kernels.Empty({n, n});
    kernels.CopyFromHost(values.data(), full);
    kernels.Cast(full, x);
    kernels.Cast(full, w);
    const auto multiply = [&] { kernels.Linear(x, w, Tensor(), Tensor(), y); };
    limits.product_seconds = Time(*context, multiply);
    limits.bf16_gflops = 2.0 * n * n * n / limits.product_seconds * 1e-9;

    const Shape images = {256, 224, 224, 3};
    const Tensor batch =
        Tensor::Empty(kernels.host_allocator(), images, DType::kF32, MemoryClass::kWorkspace);
    std::fill_n(batch.data<float>(), batch.elements(), 1.0f);
    const auto upload = [&] { kernels.Upload(batch); };
    limits.upload_seconds = Time(*context, upload);
    limits.upload_host_seconds = HostTime(*context, upload);
    limits.product_and_upload_seconds = Time(*context, [&] {
      upload();
      multiply();
    });
    const Tensor uploaded = kernels.Empty(images);
    const std::vector<float> elsewhere(static_cast<size_t>(batch.elements()), 1.0f);
    limits.slots_seconds =
        Time(*context, [&] { kernels.CopyFromHost(elsewhere.data(), uploaded); });
  }
  const Tensor from = kernels.Empty({int64_t{1} << 30}), to = kernels.Empty({int64_t{1} << 30});
  kernels.Fill(from, 1);
  const double seconds = Time(*context, [&] { kernels.Copy(from, to); });
  limits.bytes_per_second = 2.0 * static_cast<double>(from.bytes()) / seconds;
  return limits;
} catch (const StatusException& error) {
  return error.status();
}

}  // namespace lockstep
