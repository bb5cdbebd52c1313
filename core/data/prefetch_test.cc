#include "core/data/prefetch.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/base/status.h"
#include "core/data/shapes.h"
#include "core/data/testing.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr int64_t kElements = 64;

// Sample i is an image of the value i, made when the test opens the gate; `fail_after` good batches
// the data set reports an error.
class GatedImages final : public Dataset {
 public:
  std::string Describe() const override { return "gated"; }
  Task task() const override { return Task::kClassification; }
  Shape input_shape() const override { return {kElements, 1, 1}; }
  Shape target_shape() const override { return {}; }
  DType input_dtype() const override { return DType::kF32; }
  int64_t classes() const override { return 1000; }
  int64_t size(Split) const override { return 1000; }

  absl::Status Fill(Split split, absl::Span<const SampleKey> keys,
                    const Batch& batch) const override {
    EXPECT_EQ(split, Split::kTrain);
    {
      std::unique_lock lock(mutex_);
      ++asked_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return open_; });
    }
    if (fail_after && filled_ == *fail_after) return absl::DataLossError("the disk is on fire");
    for (size_t i = 0; i < keys.size(); ++i) {
      for (int64_t j = 0; j < kElements; ++j) {
        batch.inputs.data<float>()[i * kElements + j] = static_cast<float>(keys[i].index);
      }
      batch.targets.data<int32_t>()[i] = static_cast<int32_t>(keys[i].index);
    }
    ++filled_;
    return absl::OkStatus();
  }

  void SetOpen(bool open) {
    std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }
  // Waits until Fill was called `times` times in all.
  void AwaitAsked(int64_t times) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return asked_ >= times; });
  }

  std::optional<int64_t> fail_after;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int64_t asked_ = 0;
  mutable std::atomic<int64_t> filled_ = 0;
  bool open_ = true;
};

Sampler MakeSampler(const Dataset& dataset) {
  return Sampler::Create(dataset, {.seed = 2, .global_batch = 12, .shards = 2, .micro_batches = 3})
      .value();
}

int64_t BatchBytes() { return AlignedBytes(2 * kElements * 4) + AlignedBytes(2 * 4); }

TEST(Prefetcher, HandsOutTheRanksMicroBatchesInOrder) {
  const auto dataset = std::make_shared<GatedImages>();
  const Sampler sampler = MakeSampler(*dataset);
  for (int64_t depth : {1, 2, 4, 20}) {
    CpuAllocator allocator;
    // Shard 1 runs the micro-batches 3 to 5; it begins in the middle of a run.
    Prefetcher prefetcher(
        dataset, sampler, allocator,
        {.first_step = 7, .end_step = 11, .micro_batches = {3, 4, 5}, .depth = depth});
    for (int64_t step = 7; step < 11; ++step) {
      for (int64_t micro_batch = 3; micro_batch < 6; ++micro_batch) {
        const absl::StatusOr<Prefetcher::Item> item = prefetcher.Next();
        ASSERT_TRUE(item.ok()) << item.status();
        EXPECT_EQ(item->step, step);
        EXPECT_EQ(item->micro_batch, micro_batch);
        EXPECT_GE(item->wait_nanos, 0);
        const std::vector<SampleKey> keys = sampler.TrainKeys(step, micro_batch);
        ASSERT_EQ(item->batch.targets.elements(), 2);
        for (int i = 0; i < 2; ++i) {
          EXPECT_EQ(item->batch.targets.data<int32_t>()[i], keys[i].index);
          EXPECT_EQ(item->batch.inputs.data<float>()[i * kElements + 5],
                    static_cast<float>(keys[i].index));
        }
      }
    }
    EXPECT_EQ(prefetcher.Next().status().code(), absl::StatusCode::kOutOfRange);
  }
}

TEST(Prefetcher, TellsWhatItRenderedAndWhen) {
  const auto dataset = std::make_shared<GatedImages>();
  CpuAllocator allocator;
  std::mutex mutex;
  std::vector<RenderedBatch> rendered;
  Prefetcher prefetcher(dataset, MakeSampler(*dataset), allocator,
                        {.end_step = 2,
                         .micro_batches = {1, 2},
                         .depth = 1,
                         .rendered = [&](const RenderedBatch& batch) {
                           std::lock_guard lock(mutex);
                           rendered.push_back(batch);
                         }});
  for (size_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(prefetcher.Next().ok());
    std::lock_guard lock(mutex);
    ASSERT_GT(rendered.size(), i) << "it is told before the batch is handed out";
    EXPECT_EQ(rendered[i].step, static_cast<int64_t>(i / 2));
    EXPECT_EQ(rendered[i].micro_batch, static_cast<int64_t>(1 + i % 2));
    EXPECT_LE(rendered[i].begin_nanos, rendered[i].end_nanos);
    if (i > 0) {
      EXPECT_LE(rendered[i - 1].end_nanos, rendered[i].begin_nanos);
    }
  }
}

TEST(Prefetcher, RendersAheadAndSaysHowLongItWaited) {
  const auto dataset = std::make_shared<GatedImages>();
  CpuAllocator allocator;
  Prefetcher prefetcher(dataset, MakeSampler(*dataset), allocator, {.depth = 3});
  // Nobody asked yet, but three are rendered. A fourth is not begun before there is a place.
  dataset->AwaitAsked(3);
  // The third may still be in the making; the first is ready, as the second has begun.
  EXPECT_EQ(prefetcher.Next().value().wait_nanos, 0);
  dataset->AwaitAsked(4);
  EXPECT_EQ(prefetcher.Next().value().wait_nanos, 0);

  // With the gate shut, what is rendered runs out and a call waits until it opens: unless this
  // thread is held up for longer than the other one sleeps, hence several attempts.
  int64_t waited = 0;
  for (int attempt = 0; attempt < 100 && waited == 0; ++attempt) {
    dataset->SetOpen(false);
    std::thread opener([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      dataset->SetOpen(true);
    });
    for (int i = 0; i < 5; ++i) waited += prefetcher.Next().value().wait_nanos;
    opener.join();
  }
  EXPECT_GT(waited, 0);
}

// The queue is workspace, what is handed out are activations, and both are exact at any time.
TEST(Prefetcher, BooksAreExact) {
  const auto dataset = std::make_shared<GatedImages>();
  CpuAllocator allocator;
  {
    Prefetcher prefetcher(dataset, MakeSampler(*dataset), allocator, {.depth = 3});
    std::vector<Prefetcher::Item> kept;
    for (int64_t held = 0; held < 5; ++held) {
      EXPECT_EQ(allocator.books().live(MemoryClass::kWorkspace), 3 * BatchBytes());
      EXPECT_EQ(allocator.books().live(MemoryClass::kActivations), held * BatchBytes());
      kept.push_back(prefetcher.Next().value());
    }
    kept.clear();
    EXPECT_EQ(allocator.books().live(MemoryClass::kActivations), 0);
    EXPECT_EQ(allocator.books().peak(MemoryClass::kWorkspace), 3 * BatchBytes());
  }
  EXPECT_EQ(allocator.books().live_total(), 0);
}

// What a step takes does not depend on how many are left.
TEST(Prefetcher, MemoryIsThatOfTheQueueUpToTheLastStep) {
  const auto dataset = std::make_shared<GatedImages>();
  CpuAllocator allocator;
  Prefetcher prefetcher(dataset, MakeSampler(*dataset), allocator, {.end_step = 2, .depth = 3});
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(allocator.books().live(MemoryClass::kWorkspace), 3 * BatchBytes());
    EXPECT_TRUE(prefetcher.Next().ok());
  }
  EXPECT_EQ(allocator.books().live(MemoryClass::kWorkspace), 3 * BatchBytes());
  EXPECT_TRUE(absl::IsOutOfRange(prefetcher.Next().status()));
}

TEST(Prefetcher, ErrorsOfTheDataSetComeInTheirTurn) {
  const auto dataset = std::make_shared<GatedImages>();
  dataset->fail_after = 4;
  CpuAllocator allocator;
  Prefetcher prefetcher(dataset, MakeSampler(*dataset), allocator,
                        {.micro_batches = {0, 1, 2, 3, 4, 5}, .depth = 3});
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(prefetcher.Next().ok());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(prefetcher.Next().status(), absl::DataLossError("the disk is on fire"));
  }
}

TEST(Prefetcher, NoRoomIsAnError) {
  const auto dataset = std::make_shared<GatedImages>();
  CpuAllocator allocator;
  allocator.set_limit(5 * BatchBytes());
  Prefetcher prefetcher(dataset, MakeSampler(*dataset), allocator, {.depth = 3});
  std::vector<absl::StatusOr<Prefetcher::Item>> kept;
  for (int i = 0; i < 2; ++i) {
    kept.push_back(prefetcher.Next());
    EXPECT_TRUE(kept.back().ok());
  }
  EXPECT_EQ(prefetcher.Next().status().code(), absl::StatusCode::kResourceExhausted);
  allocator.set_limit(2 * BatchBytes());
  EXPECT_THROW(Prefetcher(dataset, MakeSampler(*dataset), allocator, {.depth = 3}),
               StatusException);
}

TEST(Prefetcher, StopsAtAnyTime) {
  const auto dataset = std::make_shared<GatedImages>();
  const Sampler sampler = MakeSampler(*dataset);
  for (int used = 0; used < 20; ++used) {
    CpuAllocator allocator;
    Prefetcher prefetcher(dataset, sampler, allocator, {.depth = 1 + used % 4});
    for (int i = 0; i < used; ++i) ASSERT_TRUE(prefetcher.Next().ok());
  }
}

TEST(Prefetcher, AnEmptyRangeIsOverAtOnce) {
  const auto dataset = std::make_shared<GatedImages>();
  CpuAllocator allocator;
  Prefetcher prefetcher(dataset, MakeSampler(*dataset), allocator,
                        {.first_step = 5, .end_step = 5});
  EXPECT_EQ(prefetcher.Next().status().code(), absl::StatusCode::kOutOfRange);
}

// Two ranks share a data set and get the samples that one rank alone would get.
TEST(Prefetcher, RanksShareADataset) {
  const std::shared_ptr<const Dataset> dataset = Shapes::Create({.train_samples = 100}).value();
  const Sampler sampler =
      Sampler::Create(*dataset, {.global_batch = 8, .shards = 2, .micro_batches = 2}).value();
  const auto run = [&](const std::vector<int64_t>& micro_batches) {
    CpuAllocator allocator;
    Prefetcher prefetcher(dataset, sampler, allocator,
                          {.end_step = 6, .micro_batches = micro_batches});
    std::vector<std::vector<float>> batches;
    for (size_t i = 0; i < 6 * micro_batches.size(); ++i) {
      const Prefetcher::Item item = prefetcher.Next().value();
      const absl::Span<float> inputs = item.batch.inputs.span<float>();
      batches.push_back({inputs.begin(), inputs.end()});
    }
    return batches;
  };
  const std::vector<std::vector<float>> whole = run({0, 1, 2, 3});
  std::vector<std::vector<float>> parts[2];
  std::thread other([&] { parts[1] = run({1, 3}); });
  parts[0] = run({0, 2});
  other.join();
  for (size_t i = 0; i < whole.size(); ++i) {
    const size_t step = i / 4;
    const size_t micro_batch = i % 4;
    EXPECT_EQ(whole[i], parts[micro_batch % 2][step * 2 + micro_batch / 2]);
  }
}

}  // namespace
}  // namespace lockstep
