#include "core/base/parallel.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

struct Part {
  int number;
  int64_t begin;
  int64_t end;
  std::thread::id thread;
  bool operator==(const Part& other) const {
    return number == other.number && begin == other.begin && end == other.end;
  }
};

// The parts of a loop, in order of their numbers.
std::vector<Part> PartsOf(int64_t n, int64_t grain) {
  std::mutex mutex;
  std::vector<Part> parts;
  ParallelForParts(n, grain, [&](int part, int64_t begin, int64_t end) {
    const std::lock_guard lock(mutex);
    parts.push_back({part, begin, end, std::this_thread::get_id()});
  });
  std::ranges::sort(parts, {}, &Part::number);
  return parts;
}

TEST(ParallelFor, CoversTheRangeOnceInOrder) {
  for (int threads : {1, 2, 3, 4, 7}) {
    SetThreads(threads);
    for (int64_t n : {1, 2, 3, 10, 100, 1000, 1024, 4097, 100001}) {
      for (int64_t grain : {1, 3, 64, 5000}) {
        SCOPED_TRACE(testing::Message() << n << " by " << grain << " on " << threads);
        const std::vector<Part> parts = PartsOf(n, grain);
        ASSERT_EQ(std::ssize(parts), ParallelParts(n, grain));
        ASSERT_LE(std::ssize(parts), threads);
        int64_t expected_begin = 0;
        for (int i = 0; i < std::ssize(parts); ++i) {
          EXPECT_EQ(parts[i].number, i);
          EXPECT_EQ(parts[i].begin, expected_begin);
          EXPECT_GT(parts[i].end, parts[i].begin);
          expected_begin = parts[i].end;
        }
        EXPECT_EQ(expected_begin, n);
        EXPECT_EQ(PartsOf(n, grain), parts);
      }
    }
  }
}

TEST(ParallelFor, UsesAllThreadsAndKeepsPartsBalanced) {
  SetThreads(4);
  const std::vector<Part> parts = PartsOf(100000, 1000);
  ASSERT_EQ(parts.size(), 4u);
  std::set<std::thread::id> threads;
  for (const Part& part : parts) {
    threads.insert(part.thread);
    EXPECT_NEAR(static_cast<double>(part.end - part.begin), 25000, 16);
    EXPECT_EQ(part.begin % 16, 0);
  }
  EXPECT_EQ(threads.size(), 4u);
}

TEST(ParallelFor, RunsShortRangesInline) {
  SetThreads(4);
  const std::vector<Part> parts = PartsOf(1999, 1000);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].thread, std::this_thread::get_id());
  ParallelFor(0, 1, [](int64_t, int64_t) { ADD_FAILURE() << "called for an empty range"; });
}

TEST(ParallelFor, RunsNestedLoopsInline) {
  SetThreads(3);
  std::atomic<int> outer = 0;
  std::atomic<int> inner = 0;
  ParallelFor(3, 1, [&](int64_t, int64_t) {
    ++outer;
    const std::thread::id thread = std::this_thread::get_id();
    EXPECT_EQ(ParallelParts(1000, 1), 1);
    ParallelFor(1000, 1, [&](int64_t begin, int64_t end) {
      ++inner;
      EXPECT_EQ(end - begin, 1000);
      EXPECT_EQ(std::this_thread::get_id(), thread);
    });
  });
  EXPECT_EQ(outer, 3);
  EXPECT_EQ(inner, 3);
}

// Ranks are threads: each has its own number of threads, and their loops run side by side.
TEST(ParallelFor, ThreadCountBelongsToTheCallingThread) {
  SetThreads(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([rank] {
      SetThreads(rank + 1);
      for (int repeat = 0; repeat < 20; ++repeat) {
        EXPECT_EQ(MaxThreads(), rank + 1);
        EXPECT_EQ(std::ssize(PartsOf(1000, 1)), rank + 1);
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(MaxThreads(), 2);
}

// Plain memory, written in one loop and read by other threads in the next: what ThreadSanitizer
// would report if the loop's fork and join were not made known to it.
TEST(ParallelFor, OrdersMemoryBetweenLoops) {
  SetThreads(4);
  constexpr int64_t kCount = 10000;
  std::vector<int64_t> values(kCount, 1);
  for (int64_t round = 0; round < 50; ++round) {
    std::vector<int64_t> next(kCount);
    ParallelFor(kCount, 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) next[i] = values[kCount - 1 - i] + i % 3;
    });
    values.swap(next);
  }
  int64_t sum = 0;
  for (int64_t value : values) sum += value;
  // Each round adds i % 3 over all i: 0 + 1 + 2 for each three elements; 10000 = 3 * 3333 + 1.
  EXPECT_EQ(sum, kCount + 50 * 3333 * 3);
}

TEST(LoopsSkippedTest, LoopsOfTheThreadDoNothingMeanwhile) {
  {
    const LoopsSkipped skipped;
    EXPECT_TRUE(SkipsLoops());
    EXPECT_TRUE(PartsOf(100, 1).empty());
    std::thread([] { EXPECT_EQ(PartsOf(100, 100).size(), 1u); }).join();
  }
  EXPECT_FALSE(SkipsLoops());
  EXPECT_EQ(PartsOf(100, 100).size(), 1u);
}

}  // namespace
}  // namespace lockstep
