#include "core/base/parallel.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

struct Chunk {
  int number;
  int64_t begin;
  int64_t end;
  std::thread::id thread;
  bool operator==(const Chunk& other) const {
    return number == other.number && begin == other.begin && end == other.end;
  }
};

// The chunks of a loop, in order of their numbers.
std::vector<Chunk> ChunksOf(int64_t n, int64_t grain) {
  std::mutex mutex;
  std::vector<Chunk> chunks;
  ParallelForChunks(n, grain, [&](int chunk, int64_t begin, int64_t end) {
    const std::lock_guard lock(mutex);
    chunks.push_back({chunk, begin, end, std::this_thread::get_id()});
  });
  std::ranges::sort(chunks, {}, &Chunk::number);
  return chunks;
}

TEST(ParallelFor, CoversTheRangeOnceInOrder) {
  for (int threads : {1, 2, 3, 4, 7}) {
    SetThreads(threads);
    for (int64_t n : {1, 2, 3, 10, 100, 1000, 1024, 4097, 100001}) {
      for (int64_t grain : {1, 3, 64, 5000}) {
        SCOPED_TRACE(testing::Message() << n << " by " << grain << " on " << threads);
        const std::vector<Chunk> chunks = ChunksOf(n, grain);
        ASSERT_EQ(std::ssize(chunks), ParallelChunks(n, grain));
        ASSERT_LE(std::ssize(chunks), threads);
        int64_t expected_begin = 0;
        for (int i = 0; i < std::ssize(chunks); ++i) {
          EXPECT_EQ(chunks[i].number, i);
          EXPECT_EQ(chunks[i].begin, expected_begin);
          EXPECT_GT(chunks[i].end, chunks[i].begin);
          expected_begin = chunks[i].end;
        }
        EXPECT_EQ(expected_begin, n);
        EXPECT_EQ(ChunksOf(n, grain), chunks);
      }
    }
  }
}

TEST(ParallelFor, KeepsChunksBalanced) {
  SetThreads(4);
  const std::vector<Chunk> chunks = ChunksOf(100000, 1000);
  ASSERT_EQ(chunks.size(), 4u);
  for (const Chunk& chunk : chunks) {
    EXPECT_NEAR(static_cast<double>(chunk.end - chunk.begin), 25000, 16);
    EXPECT_EQ(chunk.begin % 16, 0);
  }
}

// How many threads share a loop depends on how busy the machine is: all of them do before long.
TEST(ParallelFor, UsesAllThreads) {
  SetThreads(4);
  std::set<std::thread::id> threads;
  std::mutex mutex;
  while (threads.size() < 4) {
    ParallelFor(4, 1, [&](int64_t, int64_t) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
    });
  }
}

// Loops so short that workers come late for many of them, and take chunks of the next ones.
TEST(ParallelFor, ManyShortLoopsRunEachChunkOnce) {
  SetThreads(4);
  std::vector<int> calls(4);
  for (int loop = 1; loop <= 20000; ++loop) {
    ParallelForChunks(2 + loop % 3, 1, [&](int chunk, int64_t, int64_t) { ++calls[chunk]; });
  }
  EXPECT_EQ(calls[0], 20000);
  EXPECT_EQ(calls[1], 20000);
  EXPECT_EQ(calls[2], 20000 - 20000 / 3);  // all but loops 3, 6, 9, ...
  EXPECT_EQ(calls[3], (20000 + 1) / 3);    // loops 2, 5, 8, ...
}

TEST(ParallelFor, RunsShortRangesInline) {
  SetThreads(4);
  const std::vector<Chunk> chunks = ChunksOf(1999, 1000);
  ASSERT_EQ(chunks.size(), 1u);
  EXPECT_EQ(chunks[0].thread, std::this_thread::get_id());
  ParallelFor(0, 1, [](int64_t, int64_t) { ADD_FAILURE() << "called for an empty range"; });
}

TEST(ParallelFor, RunsNestedLoopsInline) {
  SetThreads(3);
  std::atomic<int> outer = 0;
  std::atomic<int> inner = 0;
  ParallelFor(3, 1, [&](int64_t, int64_t) {
    ++outer;
    const std::thread::id thread = std::this_thread::get_id();
    EXPECT_EQ(ParallelChunks(1000, 1), 1);
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
        EXPECT_EQ(std::ssize(ChunksOf(1000, 1)), rank + 1);
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(MaxThreads(), 2);
}

// Plain memory, written in one loop and read by other threads in the next, for ThreadSanitizer.
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
    EXPECT_TRUE(ChunksOf(100, 1).empty());
    std::thread([] { EXPECT_EQ(ChunksOf(100, 100).size(), 1u); }).join();
  }
  EXPECT_FALSE(SkipsLoops());
  EXPECT_EQ(ChunksOf(100, 100).size(), 1u);
}

TEST(ParallelFor, WhatAChunkThrowsReachesTheCaller) {
  for (int threads : {1, 3}) {
    SetThreads(threads);
    for (int thrower = 0; thrower < threads; ++thrower) {
      EXPECT_THROW(ParallelForChunks(3 * 8, 8,
                                     [thrower](int chunk, int64_t, int64_t) {
                                       if (chunk == thrower) throw std::runtime_error("odd");
                                     }),
                   std::runtime_error);
    }
  }
}

}  // namespace
}  // namespace lockstep
