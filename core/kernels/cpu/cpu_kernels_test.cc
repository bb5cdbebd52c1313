// The suite of all backends, on one, two and three threads and in all dtypes, and what the CPU
// promises beyond it.

#include "core/kernels/cpu/cpu_kernels.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "core/base/clock.h"
#include "core/base/parallel.h"
#include "core/kernels/kernels_suite.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

// Fills memory with NaN of every width before it hands it out, and keeps none: a kernel that reads
// what nobody wrote, its own scratch included, shows; so does, under ASan, one that writes beyond.
class PoisonedAllocator final : public Allocator {
 public:
  Device device() const override { return {DeviceType::kCpu, 0}; }

 protected:
  void* AllocateBlock(int64_t bytes) override {
    void* block = std::aligned_alloc(kAlignment, bytes);
    return block == nullptr ? nullptr : std::memset(block, 0xff, bytes);
  }
  void FreeBlock(void* block, int64_t) override { std::free(block); }
};

KernelsBackend OnThreads(const char* name, int threads, DType dtype = DType::kF32) {
  return {.name = name,
          .make_allocator = [] { return std::make_unique<PoisonedAllocator>(); },
          .make_kernels =
              [threads](Allocator& allocator) {
                SetThreads(threads);
                return std::make_unique<CpuKernels>(allocator);
              },
          .dtype = dtype};
}

INSTANTIATE_TEST_SUITE_P(Cpu, KernelsSuite,
                         testing::Values(OnThreads("OneThread", 1), OnThreads("TwoThreads", 2),
                                         OnThreads("ThreeThreads", 3),
                                         OnThreads("TwoThreadsF16", 2, DType::kF16),
                                         OnThreads("ThreeThreadsBF16", 3, DType::kBF16)),
                         testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(Cpu, KernelsSuite16,
                         testing::Values(OnThreads("TwoThreadsF16", 2, DType::kF16),
                                         OnThreads("ThreeThreadsBF16", 3, DType::kBF16)),
                         testing::PrintToStringParamName());

// Generation, which runs on the CPU.
class KeyValueCacheSuite : public KernelsSuite {};

INSTANTIATE_TEST_SUITE_P(Cpu, KeyValueCacheSuite,
                         testing::Values(OnThreads("OneThread", 1), OnThreads("ThreeThreads", 3),
                                         OnThreads("TwoThreadsF16", 2, DType::kF16),
                                         OnThreads("ThreeThreadsBF16", 3, DType::kBF16)),
                         testing::PrintToStringParamName());

// Tokens that come one by one, or several at once, behind others whose keys and values are kept:
// rows of the attention of the whole sequence.
TEST_P(KeyValueCacheSuite, AttentionOfFurtherTokens) {
  struct {
    int64_t heads, head_width, time, key_heads;
  } const cases[] = {
      {1, 1, 1, 1}, {3, 17, 65, 3}, {2, 20, 130, 2}, {4, 64, 65, 1}, {6, 16, 259, 2}};
  for (const auto& c : cases) {
    const Attention attention = {.heads = c.heads,
                                 .head_width = c.head_width,
                                 .dropout = {},
                                 .total_heads = c.heads,
                                 .key_heads = c.key_heads};
    const int64_t queries = c.heads * c.head_width, kept = 2 * c.key_heads * c.head_width;
    const int64_t row = queries + kept;
    // Roundings of two sums, over the head's width and over the keys, and of the factors of
    // products.
    const double roundings = SumRoundings(c.head_width + c.time) + 8;
    const Input qkv = Normal({1, c.time, row});
    const reference::Attended whole = reference::AttentionForward(attention, qkv);
    const std::vector<float> rows = Download(qkv.tensor);
    // Rows behind the last token are not read.
    std::vector<float> keys(static_cast<size_t>((c.time + 2) * kept),
                            std::numeric_limits<float>::quiet_NaN());
    for (int64_t t = 0; t < c.time; ++t) {
      std::copy_n(rows.begin() + t * row + queries, kept, keys.begin() + t * kept);
    }
    const Tensor kept_keys = Upload({c.time + 2, kept}, keys);
    for (const int64_t count : {int64_t{1}, std::min<int64_t>(c.time, 50), c.time}) {
      const int64_t before = c.time - count;
      SCOPED_TRACE(testing::Message() << count << " behind " << before << " tokens");
      const std::vector<float> further(rows.begin() + before * row, rows.end());
      const Tensor y = Output({1, count, queries});
      kernels().AttentionOfFurtherTokens(attention, before, Upload({1, count, row}, further),
                                         kept_keys, y);
      reference::Result expected(Shape{1, count, queries});
      std::copy(whole.y.value.begin() + before * queries, whole.y.value.end(),
                expected.value.begin());
      std::copy(whole.y.magnitude.begin() + before * queries, whole.y.magnitude.end(),
                expected.magnitude.begin());
      EXPECT_TRUE(Agrees(expected, y, roundings, 1));
    }
  }
}

TEST(CpuKernelsTest, BooksTheTimeOfNestedKernelsOnce) {
  CpuAllocator allocator;
  CpuKernels kernels(allocator);
  Tensor x = kernels.Empty({1000000}), y = kernels.EmptyLike(x);
  kernels.Fill(x, 1);
  const int64_t booked = kernels.busy_nanos(), begin = NowNanos();
  EXPECT_GT(booked, 0);
  for (int i = 0; i < 10; ++i) kernels.Cast(x, y);  // which copies
  EXPECT_GT(kernels.busy_nanos(), booked);
  EXPECT_LE(kernels.busy_nanos() - booked, NowNanos() - begin);
}

TEST(CpuKernelsTest, WorkspaceIsBookedAndGivenBack) {
  CpuAllocator allocator;
  CpuKernels kernels(allocator);
  Tensor x = kernels.Empty({2, 8, 8, 64}), w = kernels.Empty({64, 3, 3, 64});
  Tensor y = kernels.Empty({2, 8, 8, 64}), dw = kernels.EmptyLike(w);
  for (const Tensor& t : {x, w, y, dw}) kernels.Fill(t, 0);
  kernels.Convolution(x, w, Tensor(), {3, 1, 1}, y);
  kernels.ConvolutionBackwardWeight(y, x, {3, 1, 1}, Write::kAccumulate, dw, Tensor());
  EXPECT_GE(allocator.books().peak(MemoryClass::kWorkspace), dw.bytes());
  EXPECT_EQ(allocator.books().live(MemoryClass::kWorkspace), 0);
}

// What threads sum by themselves is added in the order of the threads, so their number shows in the
// last bits of such sums, and nowhere else.
TEST(CpuKernelsTest, ThreadsDoNotShowInElementwiseKernels) {
  CpuAllocator allocator;
  CpuKernels kernels(allocator);
  Tensor x = kernels.Empty({50001}), one = kernels.EmptyLike(x), three = kernels.EmptyLike(x);
  for (int64_t i = 0; i < x.elements(); ++i) {
    x.data<float>()[i] = static_cast<float>(i % 1999) / 100 - 10;
  }
  SetThreads(1);
  kernels.Gelu(x, one);
  const SquareSum squares = kernels.SumOfSquares(x, 10);
  SetThreads(3);
  kernels.Gelu(x, three);
  EXPECT_EQ(std::memcmp(one.raw(), three.raw(), one.bytes()), 0);
  EXPECT_EQ(kernels.SumOfSquares(x, 10).Total(), squares.Total());
}

TEST(CpuKernelsDeathTest, WrongShapes) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  CpuAllocator allocator;
  CpuKernels kernels(allocator);
  Tensor x = kernels.Empty({3, 5}), w = kernels.Empty({4, 6}), y = kernels.Empty({3, 4});
  EXPECT_DEATH(kernels.Add(x, x, y), "elements");
  EXPECT_DEATH(kernels.Linear(x, w, Tensor(), Tensor(), y), "shape");
}

}  // namespace
}  // namespace lockstep
