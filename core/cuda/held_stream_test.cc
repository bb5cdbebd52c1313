// What the host does while the GPU is behind: a stream is held until the test says so.

#include <cstdint>
#include <future>
#include <memory>
#include <numeric>
#include <vector>

#include "core/cuda/allocator.h"
#include "core/cuda/context.h"
#include "core/cuda/emulation/hold.h"
#include "core/cuda/page_locked_allocator.h"
#include "core/cuda/staging.h"
#include "core/tensor/tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using emulation::ComesToItsEnd;
using emulation::Hold;

Tensor Numbers(Allocator& allocator, int64_t elements, int32_t first) {
  const Tensor numbers = Tensor::Empty(allocator, {elements}, DType::kI32, MemoryClass::kWorkspace);
  std::iota(numbers.span<int32_t>().begin(), numbers.span<int32_t>().end(), first);
  return numbers;
}

class HeldStreamTest : public testing::Test {
 protected:
  // Numbers(...), on their way to the GPU.
  Tensor Upload(const Tensor& numbers) {
    const Tensor x = Tensor::Empty(allocator_, numbers.shape(), DType::kI32,
                                   MemoryClass::kActivations, FirstUse::kUpload);
    page_locked_.Upload(numbers.raw(), x.raw(), x.bytes());
    return x;
  }
  // Whether x has the elements first, first + 1, ..., which the rank's stream finds there.
  bool Arrives(const Tensor& x, int32_t first) {
    CudaStaging staging(*context_);
    std::vector<int32_t> back(static_cast<size_t>(x.elements())), expected(back.size());
    std::iota(expected.begin(), expected.end(), first);
    staging.ToHost(x.raw(), back.data(), x.bytes());
    return back == expected;
  }

  const std::unique_ptr<CudaContext> context_ = CudaContext::Create(0).value();
  CudaAllocator allocator_{*context_};
  PageLockedAllocator page_locked_{*context_};
};

// A batch of ResNet-50's images is 154 MB; this one, too, is more than slots take.
TEST_F(HeldStreamTest, ABatchGoesUpWhileKernelsStandStill) {
  constexpr int64_t kElements = (CudaStaging::kMostBytes + (16 << 20)) / 4;
  Hold kernels(context_->stream());
  const Tensor x = Upload(Numbers(page_locked_, kElements, 7));  // would not return
  EXPECT_TRUE(ComesToItsEnd(context_->copy_stream()));
  EXPECT_FALSE(ComesToItsEnd(context_->stream()));
  // The copy is over: its memory serves the next batch.
  Numbers(page_locked_, kElements, 0);
  EXPECT_EQ(page_locked_.page_locked_bytes(), x.bytes());
  kernels.Release();
  EXPECT_TRUE(Arrives(x, 7));
}

TEST_F(HeldStreamTest, KernelsWaitForTheUploadInFrontOfThem) {
  Hold uploads(context_->copy_stream());
  const Tensor x = Upload(Numbers(page_locked_, 1000, 7));
  EXPECT_FALSE(ComesToItsEnd(context_->stream()));
  uploads.Release();
  EXPECT_TRUE(Arrives(x, 7));
}

TEST_F(HeldStreamTest, MemoryThatAnUploadReadsIsHandedOutBehindIt) {
  constexpr int64_t kElements = 1000;
  Hold uploads(context_->copy_stream());
  std::vector<Tensor> uploaded;
  for (int32_t i = 0; i < PageLockedAllocator::kMostInFlight; ++i) {
    uploaded.push_back(Upload(Numbers(page_locked_, kElements, i)));
  }
  const int64_t bytes = page_locked_.page_locked_bytes();
  EXPECT_EQ(bytes, PageLockedAllocator::kMostInFlight * AlignedBytes(kElements * 4));
  // Now there are enough: the next waits.
  std::future<Tensor> next =
      std::async(std::launch::async, [this] { return Numbers(page_locked_, kElements, 100); });
  uploads.Release();
  uploaded.push_back(Upload(next.get()));
  EXPECT_EQ(page_locked_.page_locked_bytes(), bytes);
  for (int32_t i = 0; i < PageLockedAllocator::kMostInFlight; ++i) {
    EXPECT_TRUE(Arrives(uploaded[static_cast<size_t>(i)], i)) << i;
  }
  EXPECT_TRUE(Arrives(uploaded.back(), 100));
}

TEST(HeldStagingTest, UploadsBySlotsDoNotWaitForTheKernelsInFrontOfThem) {
  constexpr int64_t kElements = (10 << 20) + 5;
  const std::unique_ptr<CudaContext> context = CudaContext::Create(0).value();
  CudaAllocator allocator(*context);
  CudaStaging staging(*context);
  const Tensor x = Tensor::Empty(allocator, {kElements}, DType::kI32, MemoryClass::kActivations);
  std::vector<int32_t> there(kElements), back(kElements);
  std::iota(there.begin(), there.end(), 7);

  Hold kernels(context->stream());
  staging.ToDevice(there.data(), x.raw(), x.bytes());  // would not return
  EXPECT_GE(staging.bytes(), x.bytes());
  kernels.Release();
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
