// What the host does while the GPU is behind: the rank's stream is held by an operation that ends
// when the test says so.

#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "core/cuda/allocator.h"
#include "core/cuda/context.h"
#include "core/cuda/emulation/handles.h"
#include "core/cuda/staging.h"
#include "core/tensor/tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

// A batch of ResNet-50's images is 154 MB; this one takes more than four slots, too.
TEST(HeldStreamTest, UploadsDoNotWaitForTheKernelsInFrontOfThem) {
  constexpr int64_t kElements = (10 << 20) + 5;
  const std::unique_ptr<CudaContext> context = CudaContext::Create(0).value();
  CudaAllocator allocator(*context);
  CudaStaging staging(*context);
  const Tensor x = Tensor::Empty(allocator, {kElements}, DType::kI32, MemoryClass::kActivations);
  std::vector<int32_t> there(kElements), back(kElements);
  std::iota(there.begin(), there.end(), 7);

  bool is_held = true;
  emulation::QueueOn(context->stream(), {.name = "hold",
                                         .run = [] { return std::optional<emulation::Fault>(); },
                                         .is_ready = [&is_held] { return !is_held; }});
  staging.ToDevice(there.data(), x.raw(), x.bytes());  // would not return
  EXPECT_GE(staging.bytes(), x.bytes());
  emulation::Machine::Get().Change([&is_held] { is_held = false; });
  staging.ToHost(x.raw(), back.data(), x.bytes());
  EXPECT_EQ(there, back);

  // Later uploads find the memory free.
  const int64_t bytes = staging.bytes();
  context->Synchronize();
  staging.ToDevice(there.data(), x.raw(), x.bytes());
  context->Synchronize();
  EXPECT_EQ(staging.bytes(), bytes);
}

}  // namespace
}  // namespace lockstep
