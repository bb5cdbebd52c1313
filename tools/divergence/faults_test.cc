// Faults of training programs, put into a run by hooks that only this test has: each is found at
// the right operation and tensor. And runs that agree, of which none is reported.

#include "tools/divergence/testing/faults.h"

#include <algorithm>  // std::copy_if, std::find_if
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/probe/probed_run.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/engine/preset.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"
#include "tools/divergence/divergence.h"
#include "tools/divergence/judgement.h"
#include "tools/divergence/testing/injection.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

StrategyDefinition Engine() { return EnginePreset("engine", {}); }

const Assignments kWorkload = {"train.steps=2",         "probe.steps=2", "probe.values=true",
                               "cut.shards=2",          "cut.tokens=2",  "cut.micro_batches=1",
                               "cut.features=2",        "batch.size=8",  "schedule.kind=constant",
                               "schedule.total_steps=2"};

// Reads the probes of the last run, which moves to a folder that later runs leave alone.
ProbedRun Keep(const std::string& name) {
  const std::filesystem::path out = RunFolder();
  const std::filesystem::path kept = out.parent_path().parent_path() / ("kept_" + name);
  std::filesystem::remove_all(kept);
  std::filesystem::rename(out, kept);
  absl::StatusOr<ProbedRun> run = ReadProbedRun(kept.string());
  EXPECT_TRUE(run.ok()) << run.status();
  return run.ok() ? *std::move(run) : ProbedRun();
}

struct Found {
  std::string where;  // the first difference
  DifferenceKind kind = DifferenceKind::kOther;
  std::string text = {};
  std::optional<ElementDifference> element = {};
};

Found Find(const ProbedRun& a, const ProbedRun& b) {
  const absl::StatusOr<Divergence> divergence = FindDivergence(a, b);
  EXPECT_TRUE(divergence.ok()) << divergence.status();
  if (!divergence.ok() || divergence->differences.empty()) return {.where = "nowhere"};
  const Difference& first = divergence->differences.front();
  const absl::StatusOr<Judgement> judgement = Judge(a, b, first);
  EXPECT_TRUE(judgement.ok()) << judgement.status();
  return {first.key().ToString(), judgement->kind, judgement->text, judgement->first};
}

// Whether a key belongs to what is trained, and not to how.
bool IsOfWorkload(const std::string& assignment) { return assignment.starts_with("cut."); }

// What the tool finds between `single` and a run with the fault.
Found FindFault(const InjectedFault& fault, const std::string& config,
                const Assignments& workload = {}) {
  Assignments sound = With(With(kWorkload, workload), fault.needs);
  const Assignments faulty = With(sound, fault.assignments);
  std::copy_if(fault.assignments.begin(), fault.assignments.end(), std::back_inserter(sound),
               IsOfWorkload);
  RunStrategy(SingleStrategy(), MakeModel, config, sound);
  const ProbedRun single = Keep("a");
  RunStrategy(fault.strategy, MakeModel, config, faulty);
  return Find(single, Keep("b"));
}

Found FindInGpt(const std::string& name, const Assignments& workload = {}) {
  return FindFault(FaultNamed(name), SmallGptConfig(), workload);
}

TEST(FaultsTest, MeanOfMeans) {
  const Found found = FindInGpt("mean of means over uneven micro-batches");
  EXPECT_EQ(found.where, "step 1, micro-batch 0, backward of head.logits");
  EXPECT_EQ(found.kind, DifferenceKind::kFactor);
  // 8 samples in 6 micro-batches, of which the first has 2.
  EXPECT_THAT(found.text, HasSubstr("A times 0.66666"));
}

TEST(FaultsTest, AFactorOfAnAdapterIsNotSummed) {
  const Found found = FindInGpt("missing sum of a replicated LoRA factor's gradient",
                                {R"(lora.layers=["blocks.*"])", "lora.rank=2", "lora.alpha=4"});
  EXPECT_THAT(found.where, HasSubstr("step 1, shard 0, shard gradient of blocks.1.network.down."));
  EXPECT_EQ(found.kind, DifferenceKind::kCopiesDiffer);
}

TEST(FaultsTest, GradientOfATiedEmbeddingIsLost) {
  const Found found = FindInGpt("tied embedding's gradient not summed across stages");
  EXPECT_EQ(found.where, "step 1, gradient of embedding.token.weight");
}

TEST(FaultsTest, LossIsScaledTwice) {
  const Found found = FindInGpt("loss scaled twice in a pipeline");
  EXPECT_EQ(found.where, "step 1, micro-batch 0, backward of head.logits");
  EXPECT_EQ(found.kind, DifferenceKind::kFactor);
  EXPECT_THAT(found.text, HasSubstr("A times 0.5"));
}

TEST(FaultsTest, QueriesAndKeysOfAPackedProjectionAreSwapped) {
  const Found found = FindInGpt("wrong slice of a packed qkv");
  EXPECT_EQ(found.where, "step 1, micro-batch 0, forward of blocks.1.attention.qkv");
  EXPECT_EQ(found.kind, DifferenceKind::kOtherOrder);
}

TEST(FaultsTest, RunsOfContextParallelismAreOffByOne) {
  const Found found = FindInGpt("off-by-one in the runs of context parallelism");
  EXPECT_EQ(found.where, "step 1, micro-batch 0, forward of blocks.0.attention.core");
}

TEST(FaultsTest, DropoutMaskByLocalIndex) {
  const Found found = FindInGpt("dropout mask by local index");
  EXPECT_EQ(found.where, "step 1, micro-batch 0, forward of embedding.dropout");
  EXPECT_EQ(found.kind, DifferenceKind::kOtherMask);
}

TEST(FaultsTest, ABucketIsReducedTooEarly) {
  const Found found = FindInGpt("bucket reduced before its last gradient");
  EXPECT_EQ(found.where, "step 1, gradient of blocks.0.attention.projection.bias");
  EXPECT_EQ(found.kind, DifferenceKind::kOneShare);
  EXPECT_THAT(found.text, HasSubstr("shard 0"));
}

TEST(FaultsTest, AnUnshardedParameterIsStale) {
  const Found found = FindInGpt("stale unsharded parameter");
  EXPECT_EQ(found.where, "step 2, micro-batch 0, forward of blocks.1.network.down");
}

TEST(FaultsTest, NormOverLocalShards) {
  const Found found = FindInGpt("norm over local shards only");
  EXPECT_EQ(found.where, "step 1, number of gradient_norm");
  EXPECT_EQ(found.kind, DifferenceKind::kCopiesDiffer);
}

TEST(FaultsTest, ABiasIsAddedOnEachTensorParallelRank) {
  // It starts at zero.
  const Found found = FindInGpt("bias added on each tensor-parallel rank");
  EXPECT_EQ(found.where, "step 2, micro-batch 0, forward of blocks.0.attention.projection");
  ASSERT_TRUE(found.element.has_value());
  EXPECT_EQ(found.element->index.size(), 2u);
}

TEST(FaultsTest, BatchStatisticsOfTheWrongMicroBatch) {
  const Found found = FindFault(FaultNamed("batch statistics of the wrong micro-batch"),
                                SmallResNetConfig(), {"cut.tokens=1"});
  EXPECT_EQ(found.where, "step 1, micro-batch 1, forward of stem.unit.norm");
}

TEST(FaultsTest, AnExpertGetsTheGradientOfAnother) {
  const Found found = FindFault(FaultNamed("wrong expert's gradient"), SmallLlamaConfig(),
                                {"model.experts.count=4", "model.experts.top_k=2"});
  EXPECT_EQ(found.where, "step 1, gradient of blocks.0.network.experts.down.weight");
  EXPECT_EQ(found.kind, DifferenceKind::kOtherOrder);
}

TEST(FaultsTest, NormalisationsDecay) {
  // Biases, which decay too, start at zero.
  const Found found = FindInGpt("weight decay on the norms' parameters");
  EXPECT_EQ(found.where, "step 1, state after of blocks.0.attention.norm.weight");
}

TEST(FaultsTest, AdamCountsItsStepsFromOneTooMany) {
  const Found found = FindInGpt("Adam's step count off by one");
  // Moments agree: what differs first is a parameter.
  EXPECT_EQ(found.where, "step 1, state after of embedding.token.weight");
}

TEST(FaultsTest, ACheckpointMissesOptimizerState) {
  const Assignments longer =
      With(kWorkload, {"train.steps=4", "schedule.total_steps=4", "probe.first_step=2"});
  const Assignments first = With(longer, {"train.steps=2"});
  const StrategyDefinition faulty = FaultNamed("checkpoint without optimizer state").strategy;
  RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), longer);
  const ProbedRun whole = Keep("a");
  RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), first);
  ResumeStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), longer);
  EXPECT_EQ(Find(whole, Keep("b")).where, "nowhere");
  RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), first);
  ResumeStrategy(faulty, MakeModel, SmallGptConfig(), longer);
  const Found found = Find(whole, Keep("b"));
  EXPECT_THAT(found.where, HasSubstr("step 3, state before of optimizer."));
  EXPECT_EQ(found.kind, DifferenceKind::kZero);
}

// Beyond the 16.
TEST(FaultsTest, SwappedMicroBatches) {
  const auto swap = [](const StrategyInputs&, Injection& injection) {
    injection.batches = [](std::vector<Batch>& batches) { std::swap(batches[0], batches[1]); };
  };
  const Found found =
      FindFault({.name = "swapped", .workload = "", .strategy = WithFault(SingleStrategy(), swap)},
                SmallGptConfig());
  EXPECT_EQ(found.where, "step 1, micro-batch 0, forward of batch.inputs");
  EXPECT_EQ(found.kind, DifferenceKind::kOtherPlace);
  EXPECT_THAT(found.text, HasSubstr("micro-batch 1"));
}

TEST(FaultsTest, AnUpdateOfAParameterIsLost) {
  const std::string name = "blocks.1.network.down.weight";
  // Undoes the update of the first step before the second one: what is probed last is right.
  const auto lose = [name](const StrategyInputs&, Injection& injection) {
    auto kept = std::make_shared<std::vector<float>>();
    injection.before_step = [name, kept](int64_t step, const std::vector<StateTensor>& state) {
      const Tensor& tensor =
          std::find_if(state.begin(), state.end(), [&name](const StateTensor& each) {
            return each.name == name;
          })->tensor;
      float* values = tensor.data<float>();
      if (step == 0) kept->assign(values, values + tensor.elements());
      if (step == 1) std::copy(kept->begin(), kept->end(), values);
    };
  };
  const Found found =
      FindFault({.name = "lost", .workload = "", .strategy = WithFault(SingleStrategy(), lose)},
                SmallGptConfig());
  EXPECT_EQ(found.where, "step 2, micro-batch 0, forward of blocks.1.network.down");
}

TEST(FaultsTest, ThereAre16) { EXPECT_EQ(AllFaults().size(), 16u); }

// 11 runs, each pair of which is compared: 55 pairs.
TEST(AgreementTest, NoPairOfMeshesIsReported) {
  const Assignments hashes = With(kWorkload, {"probe.values=false", "cut.shards=4", "cut.tokens=4",
                                              "train.steps=1", "probe.steps=1"});
  const std::vector<Assignments> meshes = {
      {},
      {"mesh.dp=2"},
      {"mesh.dp=4"},
      {"mesh.tp=2"},
      {"mesh.cp=2"},
      {"mesh.pp=2"},
      {"mesh.dp=2", "mesh.tp=2"},
      {"mesh.dp=2", "data_parallel.shard=optimizer"},
      {"mesh.dp=2", "data_parallel.shard=parameters"},
      {"mesh.pp=2", "mesh.cp=2", "recompute.granularity=full"},
      {"mesh.tp=2", "mesh.cp=2", "tensor_parallel.sequence_parallel=true"}};
  std::vector<ProbedRun> runs;
  for (size_t i = 0; i < meshes.size(); ++i) {
    RunStrategy(Engine(), MakeModel, SmallGptConfig(), With(hashes, meshes[i]));
    runs.push_back(Keep("mesh" + std::to_string(i)));
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    for (size_t j = i + 1; j < runs.size(); ++j) {
      const absl::StatusOr<Divergence> divergence = FindDivergence(runs[i], runs[j]);
      ASSERT_TRUE(divergence.ok()) << divergence.status();
      EXPECT_GT(divergence->compared, 100);
      EXPECT_TRUE(divergence->differences.empty())
          << i << ", " << j << ": " << divergence->differences[0].key().ToString();
    }
  }
}

TEST(RefusedTest, RunsOfDifferentWorkloads) {
  const Assignments hashes = With(kWorkload, {"probe.values=false"});
  RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), hashes);
  const ProbedRun a = Keep("a");
  RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(),
              With(hashes, {"batch.size=16", "model.width=64"}));
  const absl::Status error = FindDivergence(a, Keep("b")).status();
  EXPECT_THAT(error.message(),
              HasSubstr("differ by configuration: table [model], batch.size (8 and "
                        "16); give both the same"));
}

TEST(RefusedTest, RunsWithoutACommonPlace) {
  const Assignments hashes = With(kWorkload, {"probe.values=false", "probe.steps=1"});
  RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), hashes);
  const ProbedRun a = Keep("a");
  RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), With(hashes, {"probe.first_step=1"}));
  EXPECT_THAT(FindDivergence(a, Keep("b")).status().message(),
              HasSubstr("have no place in common; probe the same steps"));
}

}  // namespace
}  // namespace lockstep
