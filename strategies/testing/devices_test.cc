// Every strategy on ranks whose tensors are a device's: no strategy knows where it computes, and
// whatever moves between ranks is waited for before it is read. The device is made up: kernels are
// the CPU's, in the rank's thread, while streams that are threads move what ranks send each other.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/comm/device/device_communicator.h"
#include "core/comm/device/testing/made_up_device.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/run/device/rank_device.h"
#include "core/run/strategy/strategy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/ddp/ddp.h"
#include "strategies/fsdp/fsdp.h"
#include "strategies/fsdp_pipe/fsdp_pipe.h"
#include "strategies/gpipe/gpipe.h"
#include "strategies/layerwise/layerwise.h"
#include "strategies/naive_ddp/naive_ddp.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"
#include "strategies/testing/wrapped_strategy.h"
#include "strategies/tp/tp.h"

namespace lockstep {
namespace {

// Host memory that says it is a device's.
class MadeUpAllocator final : public Allocator {
 public:
  Device device() const override { return {DeviceType::kCuda, 0}; }

 protected:
  void* AllocateBlock(int64_t bytes) override {
    return std::aligned_alloc(kAlignment, static_cast<size_t>(bytes));
  }
  void FreeBlock(void* block, int64_t) override { std::free(block); }
};

// Kernels whose batches are made elsewhere.
class MadeUpKernels final : public CpuKernels {
 public:
  using CpuKernels::CpuKernels;
  Allocator& host_allocator() override { return host_; }

 private:
  CpuAllocator host_;
};

class MadeUpRankDevice final : public RankDevice {
 public:
  explicit MadeUpRankDevice(std::shared_ptr<RoundBoards> boards)
      : device_(std::move(boards), MadeUpDevice::Computes::kInRanksThreads) {}

  absl::Status Connect(Communicator& world) {
    auto connected = DeviceCommunicator::Create(world, device_);
    if (!connected.ok()) return connected.status();
    world_ = *std::move(connected);
    return absl::OkStatus();
  }

  Kernels& kernels() override { return kernels_; }
  Communicator& world() override { return *world_; }

 private:
  MadeUpAllocator allocator_;
  MadeUpKernels kernels_{allocator_};
  MadeUpDevice device_;
  std::unique_ptr<DeviceCommunicator> world_;
};

class MadeUpRankDevices final : public RankDevices {
 public:
  absl::StatusOr<std::unique_ptr<RankDevice>> Make(Communicator& world, const Options&) override {
    auto device = std::make_unique<MadeUpRankDevice>(boards_);
    if (const absl::Status status = device->Connect(world); !status.ok()) return status;
    return device;
  }

 private:
  const std::shared_ptr<RoundBoards> boards_ = std::make_shared<RoundBoards>();
};

std::vector<RankReport> OnDevices(const StrategyDefinition& strategy, const std::string& config,
                                  const Assignments& assignments) {
  return RunStrategy(strategy, MakeModel, config, assignments,
                     std::make_shared<MadeUpRankDevices>());
}

TEST(DevicesTest, StrategiesHaveTheBitsOfSingleOnTheCpu) {
  for (const std::string& config : {SmallGptConfig(), SmallResNetConfig()}) {
    const Assignments cut = {"cut.micro_batches=2"};
    const auto one = RunStrategy(SingleStrategy(), MakeModel, config, cut);
    const auto two = RunStrategy(SingleStrategy(), MakeModel, config, With(cut, {"cut.shards=2"}));
    ExpectSameBits(OnDevices(SingleStrategy(), config, cut), one);
    ExpectSameBits(OnDevices(DdpStrategy(), config, With(cut, {"mesh.dp=2"})), two);
    ExpectSameBits(OnDevices(FsdpStrategy(), config, With(cut, {"mesh.dp=2"})), two);
    ExpectSameBits(OnDevices(GPipeStrategy(), config, With(cut, {"mesh.pp=2"})), one);
    ExpectSameBits(OnDevices(LayerwiseStrategy(), config, With(cut, {"mesh.pp=2"})), one);
    ExpectSameBits(OnDevices(FsdpPipeStrategy(), config, With(cut, {"mesh.dp=2", "mesh.pp=2"})),
                   two);
  }
}

TEST(DevicesTest, GuardedRunsHaveTheBitsOfOthers) {
  const Assignments cut = {"cut.micro_batches=1", "cut.shards=4", "batch.size=8"};
  const Assignments guarded = {"guard.every=1", "validation.every=1", "comm.nccl_reductions=exact"};
  for (const std::string& config : {SmallGptConfig(), SmallResNetConfig()}) {
    const auto one = RunStrategy(SingleStrategy(), MakeModel, config, cut);
    for (const char* repeat_on : {"same_rank", "other_rank"}) {
      const Assignments all =
          With(With(cut, guarded), {std::string("guard.repeat_on=") + repeat_on});
      ExpectSameBits(OnDevices(NaiveDdpStrategy(), config, With(all, {"mesh.dp=2"})), one);
      ExpectSameBits(OnDevices(DdpStrategy(), config, With(all, {"mesh.dp=4"})), one);
      ExpectSameBits(OnDevices(FsdpStrategy(), config, With(all, {"mesh.dp=2"})), one);
      ExpectSameBits(OnDevices(GPipeStrategy(), config, With(all, {"mesh.pp=2"})), one);
    }
  }
}

// Records how many micro-batches of a step were taken at each FetchAhead.
class CountedBatches final : public BatchSource {
 public:
  explicit CountedBatches(BatchSource& batches) : batches_(batches) {}

  Batch Next() override {
    ++taken_;
    return batches_.Next();
  }
  void FetchAhead() override {
    taken_before_fetch_.push_back(taken_);
    batches_.FetchAhead();
  }
  const std::vector<size_t>& taken_before_fetch() const { return taken_before_fetch_; }

 private:
  BatchSource& batches_;
  size_t taken_ = 0;
  std::vector<size_t> taken_before_fetch_;
};

class CountingStrategy final : public WrappedStrategy {
 public:
  using WrappedStrategy::WrappedStrategy;

  StepResult TrainStep(int64_t step, BatchSource& batches) override {
    CountedBatches counted(batches);
    StepResult result = WrappedStrategy::TrainStep(step, counted);
    EXPECT_THAT(counted.taken_before_fetch(), testing::ElementsAre(micro_batches().size()));
    return result;
  }
};

TEST(DevicesTest, StrategiesTellOnceAStepThatTheirBatchesAreTaken) {
  const auto run = [](const StrategyDefinition& strategy, const Assignments& mesh) {
    const auto counting = Wrapped(strategy, [](std::unique_ptr<Strategy> made, Rank&) {
      return std::make_unique<CountingStrategy>(std::move(made));
    });
    EXPECT_FALSE(RunStrategy(counting, MakeModel, SmallGptConfig(),
                             With({"cut.micro_batches=2", "train.steps=2"}, mesh))
                     .empty());
  };
  run(SingleStrategy(), {"cut.shards=2"});
  run(NaiveDdpStrategy(), {"mesh.dp=2"});
  run(DdpStrategy(), {"mesh.dp=2"});
  run(GPipeStrategy(), {"mesh.pp=3"});  // the second stage takes none
  run(LayerwiseStrategy(), {"mesh.pp=2"});
}

TEST(DevicesTest, TensorParallelismHasTheBitsItHasOnTheCpu) {
  for (const char* sequence : {"false", "true"}) {
    const Assignments mesh = {"mesh.tp=2",
                              std::string("tensor_parallel.sequence_parallel=") + sequence};
    ExpectSameBits(OnDevices(TpStrategy(), SmallGptConfig(), mesh),
                   RunStrategy(TpStrategy(), MakeModel, SmallGptConfig(), mesh));
  }
}

TEST(DevicesTest, SixteenBitsAreRoundedAlike) {
  const Assignments precision = {"precision.compute=fp16"};
  ExpectSameBits(OnDevices(DdpStrategy(), SmallGptConfig(), With(precision, {"mesh.dp=3"})),
                 RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(),
                             With(precision, {"cut.shards=3"})));
}

}  // namespace
}  // namespace lockstep
