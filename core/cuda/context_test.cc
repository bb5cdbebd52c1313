// A rank's GPU: memory in stream order, its books and its limits, copies through staging.

#include "core/cuda/context.h"

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/cuda/allocator.h"
#include "core/cuda/staging.h"
#include "core/tensor/tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CudaContextTest : public testing::Test {
 protected:
  CudaContextTest() : context_(CudaContext::Create(0).value()), allocator_(*context_) {}

  Tensor Empty(int64_t elements) {
    return Tensor::Empty(allocator_, {elements}, DType::kI32, MemoryClass::kActivations);
  }

  const std::unique_ptr<CudaContext> context_;
  CudaAllocator allocator_;
};

// With page-locked memory for all of it, and where uploads take turns.
TEST_F(CudaContextTest, CopiesAnySizeThereAndBack) {
  for (const int64_t most_bytes : {CudaStaging::kMostBytes, int64_t{4} << 20}) {
    CudaStaging staging(*context_, most_bytes);
    for (int64_t n : {1, 1000, 1 << 20, (5 << 20) + 3}) {
      std::vector<int32_t> there(n), back(n, -1);
      std::iota(there.begin(), there.end(), 7);
      const Tensor x = Empty(n);
      staging.ToDevice(there.data(), x.raw(), x.bytes());
      staging.ToHost(x.raw(), back.data(), x.bytes());
      EXPECT_EQ(there, back) << n;
    }
    EXPECT_LE(staging.bytes(), most_bytes);
  }
}

TEST_F(CudaContextTest, TheHostMayChangeWhatIsOnItsWay) {
  CudaStaging staging(*context_);
  const Tensor x = Empty(1000), y = Empty(1000);
  std::vector<int32_t> host(1000, 1), back(1000);
  staging.ToDevice(host.data(), x.raw(), x.bytes());
  host.assign(1000, 2);
  staging.ToDevice(host.data(), y.raw(), y.bytes());
  host.assign(1000, 3);
  staging.ToHost(x.raw(), back.data(), x.bytes());
  EXPECT_THAT(back, testing::Each(1));
  staging.ToHost(y.raw(), back.data(), y.bytes());
  EXPECT_THAT(back, testing::Each(2));
}

TEST_F(CudaContextTest, BooksAndAligns) {
  const Tensor x = Empty(5);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(x.raw()) % kAlignment, 0u);
  EXPECT_EQ(allocator_.books().live(MemoryClass::kActivations), kAlignment);
  EXPECT_EQ(x.device(), (Device{DeviceType::kCuda, 0}));
}

std::string MessageOf(Allocator& allocator, int64_t bytes) {
  try {
    allocator.Allocate(bytes, MemoryClass::kGradients);
  } catch (const StatusException& error) {
    return std::string(error.status().message());
  }
  return "there was room";
}

TEST_F(CudaContextTest, NoRoomSaysWhatWasAskedAndWhatIsFree) {
  const Tensor x = Empty(256);
  const std::string message = MessageOf(allocator_, int64_t{1} << 50);
  EXPECT_THAT(message, AllOf(HasSubstr("asked for gradients"), HasSubstr("free of"),
                             HasSubstr("activations 1.0 KiB")));
  // And goes on from there.
  EXPECT_EQ(MessageOf(allocator_, 1 << 20), "there was room");
}

TEST_F(CudaContextTest, HoldsTheLimit) {
  allocator_.set_limit(1 << 20);
  EXPECT_THAT(MessageOf(allocator_, 2 << 20), HasSubstr("of the limit of 1.0 MiB"));
}

}  // namespace
}  // namespace lockstep
