#include "core/nn/running_statistics.h"

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "core/autograd/testing/arrays.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using reference::Array;

constexpr int64_t kRows = 30, kChannels = 4;
constexpr float kMomentum = 0.1f;

// Estimates are fp32, of order 1, after a handful of operations.
constexpr double kTolerance = 2e-6;

class RunningStatisticsTest : public testing::Test {
 protected:
  RunningStatisticsTest() {
    layer_.Materialize(kernels_);
    other_rank_.Materialize(kernels_);
  }

  // A micro-batch whose channels have means and spreads of their own.
  static Array MicroBatch(uint64_t stream, int64_t rows = kRows) {
    Array x = RandomArray({rows, kChannels}, stream);
    for (int64_t i = 0; i < x.elements(); ++i) {
      const auto channel = static_cast<double>(i % kChannels);
      x.value[i] = x[i] * (channel + 1) + channel + 0.1 * static_cast<double>(stream);
    }
    return x;
  }

  void Gather(RunningStatistics& layer, const Array& x) {
    const reference::Normalized of_batch = reference::BatchNorm(
        x, Array(Shape{kChannels}), Array(Shape{kChannels}), Array(), 0.1, Activation::kNone);
    layer.Gather(kernels_, Upload(kernels_, of_batch.mean), Upload(kernels_, of_batch.spread),
                 x.shape.rows());
  }

  // What MicroBatchStatistics does with a micro-batch.
  void Follow(RunningStatistics& layer, const Array& x) {
    layer.Clear();
    Gather(layer, x);
    layer.Follow(kernels_, layer.sums.View(0, {2, kChannels}), x.shape.rows());
  }

  // What the estimate should be: torch's, from all rows at once.
  struct Estimate {
    Array mean{Shape{kChannels}};
    Array variance{Shape{kChannels}, std::vector<double>(kChannels, 1)};

    void Update(const std::vector<Array>& micro_batches) {
      double samples = 0;
      for (const Array& x : micro_batches) samples += static_cast<double>(x.shape.rows());
      for (int64_t c = 0; c < kChannels; ++c) {
        double sum = 0, squares = 0;
        for (const Array& x : micro_batches) {
          for (int64_t r = 0; r < x.shape.rows(); ++r) sum += x[r * kChannels + c];
        }
        for (const Array& x : micro_batches) {
          for (int64_t r = 0; r < x.shape.rows(); ++r) {
            squares += std::pow(x[r * kChannels + c] - sum / samples, 2);
          }
        }
        mean.value[c] = (1 - kMomentum) * mean[c] + kMomentum * sum / samples;
        variance.value[c] = (1 - kMomentum) * variance[c] + kMomentum * squares / (samples - 1);
      }
    }
  };
  void ExpectEstimate(const Estimate& expected) {
    EXPECT_TRUE(IsNear(expected.mean, Download(kernels_, layer_.mean), kTolerance));
    EXPECT_TRUE(IsNear(expected.variance, Download(kernels_, layer_.variance), kTolerance));
  }

  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
  RunningStatistics layer_{"norm", kChannels, kMomentum};
  RunningStatistics other_rank_{"norm", kChannels, kMomentum};
};

TEST_F(RunningStatisticsTest, FollowTheMeanAndUnbiasedVarianceOfAllMicroBatches) {
  Estimate expected;
  uint64_t stream = 1;
  for (int64_t micro_batches : {1, 3, 2}) {
    std::vector<Array> step;
    for (int64_t i = 0; i < micro_batches; ++i) {
      step.push_back(MicroBatch(stream++));
      Gather(layer_, step.back());
    }
    layer_.Update(kernels_, micro_batches);
    expected.Update(step);
    ExpectEstimate(expected);
  }
}

TEST_F(RunningStatisticsTest, SumsOfRanksAddUp) {
  const std::vector<Array> step = {MicroBatch(1), MicroBatch(2), MicroBatch(3), MicroBatch(4)};
  Gather(layer_, step[0]);
  Gather(layer_, step[1]);
  Gather(other_rank_, step[2]);
  Gather(other_rank_, step[3]);
  kernels_.Add(layer_.sums, other_rank_.sums, layer_.sums);
  layer_.Update(kernels_, 4);
  Estimate expected;
  expected.Update(step);
  ExpectEstimate(expected);
}

// Two ranks with 30 + 20 rows each, means far apart: each row counts alike.
TEST_F(RunningStatisticsTest, MicroBatchesWeighAsMuchAsTheyHaveRows) {
  const std::vector<Array> step = {MicroBatch(1, 30), MicroBatch(20, 20), MicroBatch(3, 30),
                                   MicroBatch(40, 20)};
  Gather(layer_, step[0]);
  Gather(layer_, step[1]);
  Gather(other_rank_, step[2]);
  Gather(other_rank_, step[3]);
  kernels_.Add(layer_.sums, other_rank_.sums, layer_.sums);
  layer_.Update(kernels_, 100.0 / 30);
  Estimate expected;
  expected.Update(step);
  ExpectEstimate(expected);
}

TEST_F(RunningStatisticsTest, ClearDropsWhatWasGathered) {
  Gather(layer_, MicroBatch(1));
  layer_.Clear();
  const std::vector<Array> step = {MicroBatch(2)};
  Gather(layer_, step[0]);
  layer_.Update(kernels_, 1);
  Estimate expected;
  expected.Update(step);
  ExpectEstimate(expected);
}

TEST_F(RunningStatisticsTest, GatheringAloneMovesNothing) {
  Gather(layer_, MicroBatch(1));
  ExpectEstimate(Estimate());
}

// Torch's momentum None: each update weighs alike.
TEST_F(RunningStatisticsTest, WithoutAMomentumAreTheMeanOfAllUpdates) {
  RunningStatistics cumulative("norm", kChannels, std::nullopt);
  cumulative.Materialize(kernels_);
  Array mean{Shape{kChannels}}, variance{Shape{kChannels}};
  for (const std::vector<uint64_t>& streams : {std::vector<uint64_t>{1, 2}, {3}, {4, 5, 6}}) {
    Estimate of_step;  // moved by kMomentum from 0 and 1
    std::vector<Array> step;
    for (const uint64_t stream : streams) {
      step.push_back(MicroBatch(stream));
      Gather(cumulative, step.back());
    }
    of_step.Update(step);
    cumulative.Update(kernels_, static_cast<double>(step.size()));
    for (int64_t c = 0; c < kChannels; ++c) {
      mean.value[c] += of_step.mean[c] / kMomentum / 3;
      variance.value[c] += (of_step.variance[c] - (1 - kMomentum)) / kMomentum / 3;
    }
  }
  EXPECT_EQ(cumulative.updates.data<int64_t>()[0], 3);
  EXPECT_TRUE(IsNear(mean, Download(kernels_, cumulative.mean), kTolerance));
  EXPECT_TRUE(IsNear(variance, Download(kernels_, cumulative.variance), kTolerance));
}

// Not deferred: an update for each micro-batch, in their order, whatever the rows of each.
TEST_F(RunningStatisticsTest, FollowEachMicroBatch) {
  Estimate expected;
  uint64_t stream = 1;
  for (const int64_t rows : {30, 20, 25}) {
    const Array x = MicroBatch(stream++, rows);
    Follow(layer_, x);
    expected.Update({x});
  }
  ExpectEstimate(expected);
}

TEST_F(RunningStatisticsTest, WithoutAMomentumMicroBatchesCountAlike) {
  RunningStatistics cumulative("norm", kChannels, std::nullopt);
  cumulative.Materialize(kernels_);
  Array mean{Shape{kChannels}}, variance{Shape{kChannels}};
  for (const auto& [stream, rows] : {std::pair<uint64_t, int64_t>{1, 30}, {2, 10}, {3, 20}}) {
    const Array x = MicroBatch(stream, rows);
    Follow(cumulative, x);
    Estimate of_micro_batch;  // moved by kMomentum from 0 and 1
    of_micro_batch.Update({x});
    for (int64_t c = 0; c < kChannels; ++c) {
      mean.value[c] += of_micro_batch.mean[c] / kMomentum / 3;
      variance.value[c] += (of_micro_batch.variance[c] - (1 - kMomentum)) / kMomentum / 3;
    }
  }
  EXPECT_EQ(cumulative.updates.data<int64_t>()[0], 3);
  EXPECT_TRUE(IsNear(mean, Download(kernels_, cumulative.mean), kTolerance));
  EXPECT_TRUE(IsNear(variance, Download(kernels_, cumulative.variance), kTolerance));
}

TEST_F(RunningStatisticsTest, CountAsParameterMemory) {
  EXPECT_EQ(allocator_.books().live(MemoryClass::kParameters), 2 * 3 * kAlignment);
}

}  // namespace
}  // namespace lockstep
