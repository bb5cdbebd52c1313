// Every preset on GPUs has the bits of `single` on one GPU: four ranks that share a GPU, or that
// have one each and reduce over NCCL along the tree (docs/numerics.md). The BUILD file makes a test
// of each; the environment says to the one that GPUs are shared. A ResNet is compared with the CPU
// as well.

#include <cstdlib>  // std::getenv
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/file.h"
#include "core/config/command_line.h"
#include "core/cuda/device.h"
#include "core/kernels/cpu/instruction_set.h"
#include "core/run/device/rank_device.h"
#include "core/run/leg/training_run.h"
#include "core/run/trainer.h"
#include "core/tensor/device.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/cp/cp.h"
#include "strategies/ddp/ddp.h"
#include "strategies/fsdp/fsdp.h"
#include "strategies/fsdp_pipe/fsdp_pipe.h"
#include "strategies/presets.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

constexpr int kRanks = 4;

// A model so small that emulated GPUs take about a second for a step.
const Assignments kTiny = {"model.width=16",          "data.context=8",
                           "train.steps=2",           "batch.size=8",
                           "cut.micro_batches=2",     "validation.batches=1",
                           "validation.batch_size=2", "comm.nccl_reductions=exact"};

// How a preset divides the work among kRanks, and the cut that `single` needs for the same bits.
struct Division {
  Assignments cut, mesh;
};

// Empty cut and mesh: the preset runs on one rank.
const std::map<std::string, Division>& Divisions() {
  static const auto& divisions = *new std::map<std::string, Division>{
      {"single", {}},
      {"naive_ddp", {{"cut.shards=4"}, {"mesh.dp=4"}}},
      {"ddp", {{"cut.shards=4"}, {"mesh.dp=4"}}},
      {"zero1", {{"cut.shards=4"}, {"mesh.dp=4"}}},
      {"zero2", {{"cut.shards=4"}, {"mesh.dp=4"}}},
      {"fsdp", {{"cut.shards=4"}, {"mesh.dp=4"}}},
      {"layerwise", {{}, {"mesh.pp=4"}}},
      {"gpipe", {{}, {"mesh.pp=4"}}},
      {"fsdp_pipe", {{"cut.shards=2"}, {"mesh.dp=2", "mesh.pp=2"}}},
      {"tp", {{"cut.shards=2", "cut.features=2"}, {"mesh.dp=2", "mesh.tp=2"}}},
      {"cp", {{"cut.shards=2", "cut.tokens=2"}, {"mesh.dp=2", "mesh.cp=2"}}},
      {"ep", {{"cut.shards=4", "model.experts.count=4"}, {"mesh.dp=4", "mesh.ep=2"}}},
      {"lora", {{"cut.shards=4", "lora.layers=[\"*.attention\"]"}, {"mesh.dp=4"}}},
      {"mesh", {{"cut.features=2"}, {"mesh.pp=2", "mesh.tp=2"}}},
  };
  return divisions;
}

// How ranks with a GPU each send messages: by copies, as threads do, or over NCCL, as processes do.
enum class Messages { kByCopies, kOverNccl };

// Fails the test where the machine has no GPU for each rank and the test is not about sharing one.
RanksHere RanksOfThisTest(int ranks, Messages messages) {
  const char* const gpus_are = std::getenv("LOCKSTEP_TEST_GPUS");
  if (ranks == 1 || (gpus_are != nullptr && gpus_are == std::string("shared"))) {
    return {.ranks = ranks};
  }
  const absl::StatusOr<int> gpus = cuda::CountDevices();
  EXPECT_TRUE(gpus.ok()) << gpus.status();
  if (gpus.ok()) {
    EXPECT_GE(*gpus, ranks) << "each rank of this test has a GPU; run it on a larger machine";
  }
  return {.ranks = ranks, .processes = messages == Messages::kOverNccl ? ranks : 0};
}

std::vector<RankReport> OnGpus(const StrategyDefinition& strategy, const std::string& config,
                               const Assignments& assignments, const RanksHere& ranks) {
  auto devices = RankDevices::Create(DeviceType::kCuda, ranks, WidestInstructionSet());
  if (!devices.ok()) {
    ADD_FAILURE() << devices.status();
    return std::vector<RankReport>(1);
  }
  return RunStrategy(strategy, MakeModel, config, assignments, *std::move(devices));
}

// The preset's table of LoRA is a table of `single` too, but its strategy is another.
const StrategyDefinition& ReferenceFor(const StrategyDefinition& strategy) {
  static const auto& single = *new StrategyDefinition(SingleStrategy());
  return strategy.name == "lora" ? strategy : single;
}

class GpusTest : public testing::TestWithParam<StrategyDefinition> {
 protected:
  // A GPT; for experts a Llama, since a GPT has none.
  static std::string Gpt() {
    return std::string(GetParam().name) == "ep" ? SmallLlamaConfig() : SmallGptConfig();
  }

  // Returns the preset's reports; none where it has no division.
  std::vector<RankReport> ExpectBitsOfOneGpu(const std::string& config, const Assignments& workload,
                                             Messages messages) {
    const StrategyDefinition& strategy = GetParam();
    const auto found = Divisions().find(strategy.name);
    if (found == Divisions().end()) {
      ADD_FAILURE() << strategy.name << " has no division in this test";
      return {};
    }
    const auto& [cut, mesh] = found->second;
    const Assignments reference = With(workload, cut);
    const RanksHere ranks = RanksOfThisTest(mesh.empty() ? 1 : kRanks, messages);
    const auto reports = OnGpus(strategy, config, With(reference, mesh), ranks);
    ExpectSameBits(reports, OnGpus(ReferenceFor(strategy), config, reference, {.ranks = 1}));
    return reports;
  }
};

TEST_P(GpusTest, HasTheBitsOfSingleInFp32) {
  ExpectBitsOfOneGpu(Gpt(), kTiny, Messages::kOverNccl);
}

TEST_P(GpusTest, HasTheBitsOfSingleInBf16) {
  ExpectBitsOfOneGpu(Gpt(), With(kTiny, {"precision.compute=bf16", "train.steps=1"}),
                     Messages::kByCopies);
}

// The first step overflows and is skipped. The second has a scale 2^17 times lower and is not. With
// one micro-batch, two steps cost as much as the step in bf16, whose shards add up micro-batches.
TEST_P(GpusTest, HasTheBitsOfSingleInFp16) {
  const auto reports = ExpectBitsOfOneGpu(
      Gpt(),
      With(kTiny, {"precision.compute=fp16", "precision.initial_scale=134217728",
                   "precision.backoff=0.00000762939453125", "batch.size=4", "cut.micro_batches=1"}),
      Messages::kByCopies);
  for (const RankReport& report : reports) {
    EXPECT_EQ(report.steps, 2);
    EXPECT_EQ(report.skipped_steps, 1);
    EXPECT_EQ(report.loss_scale, 1024);
  }
}

// With grouped-query attention, rotary positions, RMS normalisation and SwiGLU.
TEST_P(GpusTest, HasTheBitsOfSingleOnALlama) {
  ExpectBitsOfOneGpu(SmallLlamaConfig(), With(kTiny, {"train.steps=1"}), Messages::kByCopies);
}

// The other ways in which ranks meet each other's tokens; the preset's own is gather.
TEST(GpusContextParallelTest, RingAndUlyssesHaveTheBitsOfSingle) {
  const struct {
    std::string attention, tokens;
    Assignments mesh;
  } cases[] = {{"ring", "cut.tokens=4", {"mesh.dp=1", "mesh.cp=4"}},
               {"ulysses", "cut.tokens=2", {"mesh.dp=2", "mesh.cp=2"}}};
  for (const auto& [attention, tokens, mesh] : cases) {
    SCOPED_TRACE(attention);
    const Assignments workload =
        With(kTiny, {"precision.compute=bf16", "train.steps=1", "cut.shards=2", tokens});
    const Assignments divided =
        With(With(workload, mesh), {"context_parallel.attention=" + attention});
    ExpectSameBits(OnGpus(CpStrategy(), SmallGptConfig(), divided,
                          RanksOfThisTest(kRanks, Messages::kOverNccl)),
                   OnGpus(SingleStrategy(), SmallGptConfig(), workload, {.ranks = 1}));
  }
}

// Convolutions, pooling, and batch normalisation, whose statistics are those of a micro-batch: two
// images of 16 positions or more in each block. With fewer values, normalisation amplifies
// rounding, and no tolerance would tell an error from it.
TEST(GpusResNetTest, StagesWithShardsHaveTheBitsOfSingleAndLossesNearTheCpus) {
  // The cuda_tolerance of //experiments/resnet_shapes, which also compares three losses.
  constexpr double kTolerance = 1.5e-4;
  const Assignments workload = {"model.width=8",
                                "train.steps=3",
                                "batch.size=8",
                                "cut.micro_batches=2",
                                "cut.shards=2",
                                "validation.batches=1",
                                "validation.batch_size=2",
                                "comm.nccl_reductions=exact"};
  const auto single = OnGpus(SingleStrategy(), SmallResNetConfig(), workload, {.ranks = 1});
  ExpectSameBits(
      OnGpus(FsdpPipeStrategy(), SmallResNetConfig(), With(workload, {"mesh.dp=2", "mesh.pp=2"}),
             RanksOfThisTest(kRanks, Messages::kByCopies)),
      single);
  const auto cpu = RunStrategy(SingleStrategy(), MakeModel, SmallResNetConfig(), workload);
  ASSERT_EQ(cpu[0].losses.size(), 3u);
  ASSERT_EQ(single[0].losses.size(), 3u);
  EXPECT_NE(single[0].losses, cpu[0].losses) << "has the CPU computed both?";
  for (size_t step = 0; step < cpu[0].losses.size(); ++step) {
    EXPECT_NEAR(single[0].losses[step] / cpu[0].losses[step], 1, kTolerance) << "step " << step;
  }
}

// One rank alone, and then all: the first leg does not decide how many GPUs there are. In the end a
// mesh that there may be too few for, whose ranks then share one from the first step on.
TEST(GpusLegsTest, ChangesOfMeshHaveTheBitsOfSingle) {
  const Assignments workload = With(kTiny, {"train.steps=3", "batch.size=16", "cut.shards=8"});
  const std::vector<RankReport> single =
      OnGpus(SingleStrategy(), SmallGptConfig(), workload, {.ranks = 1});
  for (const std::string last : {"ddp dp=2", "ddp dp=8"}) {
    SCOPED_TRACE(last);
    const std::string config = testing::TempDir() + "/legs.toml";
    ASSERT_TRUE(WriteFileAtomically(config, SmallGptConfig()).ok());
    CommandLine line;
    line.configs = {config};
    line.out = testing::TempDir() + "/legs/" + last;
    line.device = DeviceType::kCuda;
    line.assignments =
        With(workload, {"train.legs=[\"1: single\", \"1: ddp dp=4\", \"1: " + last + "\"]"});
    const auto run = PrepareRun(line, SingleStrategy(), MakeModel, {}, LegStrategies());
    ASSERT_TRUE(run.ok()) << run.status();
    const auto ranks = TrainRanks(*run);
    ASSERT_TRUE(ranks.ok()) << ranks.status();
    ExpectSameBits({ranks->front()}, single);  // the others have been idle
  }
}

// A repeated step has the bits of the first, and what is handed over is whole when it is hashed.
TEST(GpusGuardTest, NothingIsReportedThatDidNotHappen) {
  const Assignments workload = With(kTiny, {"cut.shards=4", "batch.size=4", "train.steps=1",
                                            "cut.micro_batches=1", "validation.at_start=true"});
  const auto single = OnGpus(SingleStrategy(), SmallGptConfig(), workload, {.ranks = 1});
  const RanksHere ranks = RanksOfThisTest(kRanks, Messages::kByCopies);
  for (const auto& [strategy, repeat_on] : std::vector<std::pair<StrategyDefinition, std::string>>{
           {DdpStrategy(), "same_rank"}, {FsdpStrategy(), "other_rank"}}) {
    SCOPED_TRACE(strategy.name + " " + repeat_on);
    ExpectSameBits(OnGpus(strategy, SmallGptConfig(),
                          With(workload, {"mesh.dp=4", "guard.every=1",
                                          "guard.repeat_on=\"" + repeat_on + "\""}),
                          ranks),
                   single);
  }
}

INSTANTIATE_TEST_SUITE_P(Presets, GpusTest, testing::ValuesIn(AllStrategies()),
                         [](const auto& preset) { return std::string(preset.param.name); });

}  // namespace
}  // namespace lockstep
