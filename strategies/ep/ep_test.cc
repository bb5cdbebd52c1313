#include "strategies/ep/ep.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/fsdp/fsdp.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

const char kExperts[] = "model.experts.count=4";

std::vector<RankReport> Train(const Assignments& assignments) {
  return RunStrategy(EpStrategy(), MakeModel, SmallLlamaConfig(), With({kExperts}, assignments));
}

std::vector<RankReport> TrainSingle(const Assignments& assignments) {
  return RunStrategy(SingleStrategy(), MakeModel, SmallLlamaConfig(),
                     With({kExperts}, assignments));
}

// All calls of a rank in a step, by kind: two micro-batches of a model of two layers, whose rows go
// to the one other rank and back, and so do their gradients. Experts of two ranks that are divided
// among two need no sum.
TEST(EpTest, AStepMakesNoCallThatTheoryDoesNotHave) {
  using Calls = std::map<std::pair<Operation, std::string>, int64_t>;
  const RankReport report = Train({"mesh.dp=2", "mesh.ep=2", "cut.micro_batches=2"})[1];
  Calls of_step;
  for (const auto& [what, total] : report.traffic.by_kind) {
    EXPECT_EQ(total.calls % report.steps, 0) << what.second;
    of_step[what] = total.calls / report.steps;
  }
  constexpr int64_t kPasses = 2 * 2;  // micro-batches and layers
  EXPECT_EQ(of_step, (Calls{{{Operation::kAllToAll, "expert counts"}, kPasses},
                            {{Operation::kSend, "expert rows"}, 2 * kPasses},
                            {{Operation::kRecv, "expert rows"}, 2 * kPasses},
                            {{Operation::kSend, "expert row gradients"}, 2 * kPasses},
                            {{Operation::kRecv, "expert row gradients"}, 2 * kPasses},
                            {{Operation::kAllReduce, "gradients"}, 1},
                            {{Operation::kAllReduce, "norm"}, 2},
                            {{Operation::kAllReduce, "statistics"}, 1},
                            {{Operation::kAllReduce, "loss"}, 1}}));
}

// Where each token chooses all experts the loads are even, and nothing depends on the choice.
TEST(EpTest, CostsArePredictedToTheByteWhereLoadsAreEven) {
  for (const Assignments& mesh : std::vector<Assignments>{
           {"mesh.dp=2", "mesh.ep=2"},
           {"mesh.dp=4", "mesh.ep=4", "cut.shards=8"},
           {"mesh.dp=2", "mesh.cp=2", "mesh.ep=4", "cut.micro_batches=2"},
           {"mesh.dp=2", "mesh.tp=2", "mesh.ep=2"},
           {"mesh.dp=2", "mesh.tp=2", "mesh.ep=2", "tensor_parallel.sequence_parallel=true"},
           {"mesh.dp=4", "mesh.ep=2", "precision.compute=bf16", "recompute.granularity=full"}}) {
    SCOPED_TRACE(absl::StrJoin(mesh, " "));
    ExpectPredictedCosts(Train(With({"model.experts.top_k=4", "batch.size=16"}, mesh)));
  }
}

// One expert of a row: some ranks get no rows of some micro-batches, and bits stay.
TEST(EpTest, ExpertsWithoutRowsChangeNoBit) {
  const Assignments few = {"model.experts.top_k=1", "batch.size=4", "cut.shards=4",
                           "data.context=4"};
  const auto single = TrainSingle(few);
  const auto ranks = Train(With(few, {"mesh.dp=4", "mesh.ep=4"}));
  ExpectSameBits(ranks, single);
  for (const RankReport& rank : ranks) ExpectPredictedTraffic(rank);
}

// A number of ranks that is no power of two is the root of the tree over shards.
TEST(EpTest, ThreeRanksHaveTheBitsOfSingle) {
  const Assignments cut = {"model.experts.count=6", "cut.shards=3", "batch.size=12",
                           "cut.micro_batches=2"};
  const auto single = TrainSingle(cut);
  const auto ranks = Train(With(cut, {"mesh.dp=3", "mesh.ep=3"}));
  ExpectSameBits(ranks, single);
  for (const RankReport& rank : ranks) ExpectPredictedTraffic(rank);
}

TEST(EpTest, SixteenBitsHaveTheBitsOfSingle) {
  for (const char* compute : {"precision.compute=bf16", "precision.compute=fp16"}) {
    SCOPED_TRACE(compute);
    const Assignments cut = {compute, "cut.shards=4", "cut.micro_batches=2", "batch.size=16"};
    ExpectSameBits(Train(With(cut, {"mesh.dp=4", "mesh.ep=2"})), TrainSingle(cut));
  }
}

// Capacities drop the same choices, and the auxiliary loss is that of each micro-batch.
TEST(EpTest, CapacitiesAndBalanceHaveTheBitsOfSingle) {
  const Assignments cut = {"model.experts.capacity_factor=1.1", "model.experts.auxiliary_loss=0.5",
                           "cut.shards=2", "cut.micro_batches=2"};
  const auto ranks = Train(With(cut, {"mesh.dp=2", "mesh.ep=2"}));
  ExpectSameBits(ranks, TrainSingle(cut));
  for (const RankReport& rank : ranks) ExpectPredictedTraffic(rank);
}

// Who holds which expert is the layout's to say: checkpoints go from mesh to mesh, `first` first.
void ExpectMeshesToResumeEachOther(const Assignments& workload, const Assignments& first) {
  const std::string config = SmallLlamaConfig() + "[checkpoint]\nevery = 1\n";
  const Assignments cut =
      With(workload, {kExperts, "cut.shards=4", "cut.tokens=2", "cut.features=2"});
  const auto single = RunStrategy(SingleStrategy(), MakeModel, config, cut);
  RunStrategy(EpStrategy(), MakeModel, config, With(With(cut, first), {"train.steps=1"}));
  ResumeStrategy(FsdpStrategy(), MakeModel, config,
                 With(cut, {"mesh.dp=2", "mesh.cp=2", "mesh.ep=4", "train.steps=2"}));
  ResumeStrategy(SingleStrategy(), MakeModel, config, With(cut, {"train.steps=3"}));
  const auto last = ResumeStrategy(
      EpStrategy(), MakeModel, config,
      With(cut, {"mesh.dp=2", "mesh.tp=2", "mesh.ep=2", "tensor_parallel.sequence_parallel=true"}));
  EXPECT_EQ(last[0].losses, std::vector<double>{single[0].losses[3]});
  EXPECT_EQ(last[0].parameter_hash, single[0].parameter_hash);
}

TEST(EpTest, AnyMeshResumesAnyOther) {
  ExpectMeshesToResumeEachOther({}, {"mesh.dp=4", "mesh.ep=2"});
}

// Each expert has a pair of factors, one of them whole on every rank along tp.
TEST(EpTest, AdaptersOfExpertsHaveTheBitsOfSingle) {
  const Assignments adapters = {"lora.layers=['*.experts', '*.qkv']", "lora.rank=2", "cut.shards=4",
                                "cut.tokens=2", "cut.features=2"};
  for (const Assignments& cut : std::vector<Assignments>{
           {"precision.compute=fp32"}, {"precision.compute=bf16", "cut.micro_batches=2"}}) {
    const Assignments workload = With(adapters, cut);
    const auto single = TrainSingle(workload);
    for (const Assignments& mesh : std::vector<Assignments>{
             {"mesh.dp=4", "mesh.ep=4"},
             {"mesh.dp=2", "mesh.cp=2", "mesh.ep=4"},
             {"mesh.dp=2", "mesh.tp=2", "mesh.ep=2"},
             {"mesh.dp=2", "mesh.tp=2", "mesh.ep=2", "tensor_parallel.sequence_parallel=true"}}) {
      SCOPED_TRACE(absl::StrJoin(With(cut, mesh), " "));
      const auto ranks = Train(With(workload, mesh));
      ExpectSameBits(ranks, single);
      for (const RankReport& rank : ranks) ExpectPredictedTraffic(rank);
    }
  }
}

TEST(EpTest, AdaptersOfExpertsCostWhatIsPredicted) {
  for (const Assignments& mesh : std::vector<Assignments>{
           {"mesh.dp=4", "mesh.ep=2", "cut.shards=8"},
           {"mesh.dp=2", "mesh.cp=2", "mesh.ep=4", "cut.micro_batches=2"},
           {"mesh.dp=2", "mesh.tp=2", "mesh.ep=2", "precision.compute=bf16"}}) {
    SCOPED_TRACE(absl::StrJoin(mesh, " "));
    ExpectPredictedCosts(Train(
        With({"model.experts.top_k=4", "batch.size=16", "lora.layers=['*.experts']", "lora.rank=2"},
             mesh)));
  }
}

TEST(EpTest, AdaptersOfExpertsGoFromMeshToMesh) {
  ExpectMeshesToResumeEachOther({"lora.layers=['*.experts']", "lora.rank=2"},
                                {"mesh.dp=2", "mesh.tp=2", "mesh.ep=2"});
}

TEST(EpTest, RefusesWhatDoesNotDivide) {
  const auto problem = [](const std::string& config, const Assignments& assignments) {
    return std::string(FailStrategy(EpStrategy(), MakeModel, config, assignments).message());
  };
  const std::string llama = SmallLlamaConfig();
  EXPECT_THAT(problem(llama, {"mesh.dp=2", "mesh.ep=2"}), HasSubstr("no experts to divide"));
  EXPECT_THAT(problem(SmallGptConfig(), {"mesh.dp=2", "mesh.ep=2"}),
              HasSubstr("no experts to divide"));
  EXPECT_THAT(problem(llama, {"model.experts.count=3", "mesh.dp=2", "mesh.ep=2"}),
              HasSubstr("model.experts.count is 3"));
  EXPECT_THAT(problem(llama, {kExperts, "mesh.dp=4", "mesh.ep=3"}),
              HasSubstr("use a divisor of mesh.dp x mesh.cp, which is 4"));
  EXPECT_THAT(problem(llama, {"model.experts.count=6", "mesh.dp=6", "mesh.ep=3", "cut.shards=6",
                              "batch.size=6"}),
              HasSubstr("no node of their tree"));
  EXPECT_THAT(
      std::string(FailStrategy(FsdpStrategy(), MakeModel, llama,
                               {kExperts, "mesh.dp=4", "mesh.ep=2", "data_parallel.reshard=2"})
                      .message()),
      HasSubstr("experts are not kept by groups of neighbours"));
}

}  // namespace
}  // namespace lockstep
