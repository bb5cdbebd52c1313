// hashes.csv of runs: the same on every mesh, tensor by tensor, and another where a tensor is.

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "core/checkpoint/state_tensor.h"
#include "core/report/metrics.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/engine/preset.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

const Assignments kWorkload = {"cut.shards=4",  "cut.micro_batches=1", "cut.features=2",
                               "batch.size=16", "train.steps=3",       "hashes.every=1"};

StrategyDefinition Engine() { return EnginePreset("engine", {}); }

std::vector<StepHashes> Hashes() { return ReadHashes(RunFolder() + "/hashes.csv").value(); }

class HashesTest : public testing::TestWithParam<SmallModel> {
 protected:
  Assignments Workload(const Assignments& more) const {
    const std::string width = GetParam() == SmallModel::kGpt ? "model.width=32" : "model.width=12";
    return With(With(kWorkload, {width}), more);
  }

  std::vector<StepHashes> Run(const StrategyDefinition& strategy, const Assignments& more) {
    reports_ = RunStrategy(strategy, MakeModel, SmallConfig(GetParam()), Workload(more));
    return Hashes();
  }

  std::vector<RankReport> reports_;
};

TEST_P(HashesTest, AreThoseOfSingleOnEveryMesh) {
  const std::vector<StepHashes> single = Run(SingleStrategy(), {});
  ASSERT_EQ(single.size(), 3u);
  for (const Assignments& mesh :
       std::vector<Assignments>{{"mesh.dp=2", "mesh.tp=2", "data_parallel.shard=parameters"},
                                {"mesh.replicas=2", "mesh.dp=2", "data_parallel.shard=optimizer"},
                                {"mesh.pp=2", "mesh.dp=2", "data_parallel.shard=gradients"},
                                {"mesh.pp=2", "mesh.tp=2", "run.threads=3"}}) {
    SCOPED_TRACE(mesh[0] + " " + mesh[1]);
    EXPECT_EQ(Run(Engine(), mesh), single);
  }
}

TEST_P(HashesTest, TheLastOfAllWeightsAddUpToTheParameterHash) {
  uint64_t sum = 0;
  int of_optimizer = 0;
  const StepHashes last = Run(SingleStrategy(), {}).back();
  for (const TensorHash& value : last.tensors) {
    const bool is_weight = !IsOptimizerState(value.tensor);
    if (is_weight) sum += value.hash;
    of_optimizer += !is_weight;
  }
  EXPECT_EQ(absl::StrFormat("%016x", sum), reports_[0].parameter_hash);
  EXPECT_GT(of_optimizer, 0);
}

// Decay moves the weights that decay, from the first step on, and nothing else in that step.
TEST_P(HashesTest, ATensorThatMovesHasAnotherHash) {
  const StepHashes one = Run(SingleStrategy(), {"optimizer.weight_decay=0"})[0];
  const StepHashes other = Run(SingleStrategy(), {"optimizer.weight_decay=0.1"})[0];
  ASSERT_EQ(one.tensors.size(), other.tensors.size());
  int moved = 0;
  for (size_t i = 0; i < one.tensors.size(); ++i) {
    if (one.tensors[i] == other.tensors[i]) continue;
    ++moved;
    EXPECT_TRUE(absl::EndsWith(one.tensors[i].tensor, "weight")) << one.tensors[i].tensor;
  }
  EXPECT_GT(moved, 0);
  EXPECT_LT(moved, static_cast<int>(one.tensors.size()));
}

TEST_P(HashesTest, AResumedRunHasTheRowsOfAWholeOne) {
  const Assignments every_second = {"train.steps=5", "schedule.total_steps=5", "hashes.every=2"};
  const std::vector<StepHashes> whole = Run(SingleStrategy(), every_second);
  ASSERT_EQ(whole.size(), 2u);
  EXPECT_EQ(whole[0].step, 1);
  Run(SingleStrategy(), With(every_second, {"train.steps=3"}));
  EXPECT_EQ(Hashes().size(), 1u);
  ResumeStrategy(SingleStrategy(), MakeModel, SmallConfig(GetParam()), Workload(every_second));
  EXPECT_EQ(Hashes(), whole);
}

INSTANTIATE_TEST_SUITE_P(Models, HashesTest,
                         ::testing::Values(SmallModel::kGpt, SmallModel::kResNet),
                         [](const auto& test) { return Name(test.param); });

}  // namespace
}  // namespace lockstep
