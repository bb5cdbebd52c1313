#include "core/cuda/page_locked_allocator.h"

#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "core/cuda/allocator.h"
#include "core/cuda/context.h"
#include "core/cuda/staging.h"
#include "core/tensor/tensor.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr int64_t kElements = 1000;
constexpr int32_t kBatches = 30;

class PageLockedAllocatorTest : public testing::Test {
 protected:
  // Host memory that has the elements first, first + 1, ...
  Tensor Numbers(int32_t first) {
    const Tensor x = Tensor::Empty(page_locked_, {kElements}, DType::kI32, MemoryClass::kWorkspace);
    std::iota(x.span<int32_t>().begin(), x.span<int32_t>().end(), first);
    return x;
  }
  Tensor Upload(const Tensor& host) {
    const Tensor x = Tensor::Empty(allocator_, host.shape(), DType::kI32, MemoryClass::kActivations,
                                   FirstUse::kUpload);
    page_locked_.Upload(host.raw(), x.raw(), x.bytes());
    return x;
  }
  // What the rank's stream finds there.
  std::vector<int32_t> Read(const Tensor& x) {
    std::vector<int32_t> elements(static_cast<size_t>(x.elements()));
    staging_.ToHost(x.raw(), elements.data(), x.bytes());
    return elements;
  }
  static std::vector<int32_t> From(int32_t first, int64_t elements = kElements) {
    std::vector<int32_t> numbers(static_cast<size_t>(elements));
    std::iota(numbers.begin(), numbers.end(), first);
    return numbers;
  }

  const std::unique_ptr<CudaContext> context_ = CudaContext::Create(0).value();
  CudaAllocator allocator_{*context_};
  CudaStaging staging_{*context_};
  PageLockedAllocator page_locked_{*context_};
};

TEST_F(PageLockedAllocatorTest, WhatIsUploadedIsThereForTheRanksStream) {
  for (int32_t i = 0; i < kBatches; ++i) EXPECT_EQ(Read(Upload(Numbers(i))), From(i)) << i;
}

TEST_F(PageLockedAllocatorTest, BatchesInARowKeepTheirElements) {
  std::vector<Tensor> uploaded;
  for (int32_t i = 0; i < kBatches; ++i) uploaded.push_back(Upload(Numbers(i)));
  for (int32_t i = 0; i < kBatches; ++i) {
    EXPECT_EQ(Read(uploaded[static_cast<size_t>(i)]), From(i)) << i;
  }
}

TEST_F(PageLockedAllocatorTest, UploadsAPartOfABlock) {
  constexpr int64_t kFirst = 64, kPart = 100;
  EXPECT_EQ(Read(Upload(Numbers(5).View(kFirst, {kPart}))), From(5 + kFirst, kPart));
}

TEST_F(PageLockedAllocatorTest, KeepsWhatIsPageLockedAndCountsIt) {
  constexpr int64_t kBytes = AlignedBytes(kElements * 4);
  for (int32_t i = 0; i < kBatches; ++i) {
    const Tensor live = Numbers(i);
    Upload(Numbers(i));
    EXPECT_EQ(page_locked_.books().live(MemoryClass::kWorkspace), kBytes);
    EXPECT_LE(page_locked_.page_locked_bytes(), (2 + PageLockedAllocator::kMostInFlight) * kBytes);
  }
  EXPECT_EQ(page_locked_.books().live_total(), 0);
  EXPECT_EQ(page_locked_.books().peak_total(), 2 * kBytes);
  context_->Synchronize();
  // Enough for all from now on.
  const int64_t bytes = page_locked_.page_locked_bytes();
  { const Tensor one = Numbers(0), two = Numbers(1); }
  EXPECT_EQ(page_locked_.page_locked_bytes(), bytes);
}

TEST_F(PageLockedAllocatorTest, IsMemoryOfTheHost) {
  const Tensor x = Numbers(0);
  EXPECT_EQ(x.device(), (Device{DeviceType::kCpu, 0}));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(x.raw()) % kAlignment, 0u);
}

}  // namespace
}  // namespace lockstep
