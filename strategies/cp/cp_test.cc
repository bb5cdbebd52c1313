#include "strategies/cp/cp.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/fsdp/fsdp.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::vector<RankReport> Train(const Assignments& assignments) {
  return RunStrategy(CpStrategy(), MakeModel, SmallGptConfig(), assignments);
}

// All calls of a rank in a step, by kind: two micro-batches of a model of two layers.
TEST(CpTest, AStepMakesNoCallThatTheoryDoesNotHave) {
  using Calls = std::map<std::pair<Operation, std::string>, int64_t>;
  const auto calls = [](const std::string& attention, const Assignments& more = {}) {
    const RankReport report =
        std::move(Train(With({"mesh.dp=2", "mesh.cp=2", "cut.micro_batches=2",
                              absl::StrCat("context_parallel.attention=", attention)},
                             more))[3]);
    Calls of_step;
    for (const auto& [what, total] : report.traffic.by_kind) {
      EXPECT_EQ(total.calls % report.steps, 0) << what.second;
      of_step[what] = total.calls / report.steps;
    }
    return of_step;
  };
  constexpr int64_t kPasses = 2 * 2;  // micro-batches and layers
  const auto with = [](Calls all, int64_t sums_of_shards = 0) {
    all[{Operation::kAllReduce, "gradients"}] = 1;
    all[{Operation::kAllReduce, "loss"}] = 1;
    if (sums_of_shards > 0) all[{Operation::kAllReduce, "token gradients"}] = sums_of_shards;
    return all;
  };
  const Calls gather = {{{Operation::kAllGather, "keys and values"}, 2 * kPasses},
                        {{Operation::kReduceScatter, "key and value gradients"}, kPasses}};
  EXPECT_EQ(calls("gather"), with(gather));
  // Each of a rank's shards is summed over cp first: 2 parameters of the embedding, 12 of each
  // layer, 3 of the head.
  EXPECT_EQ(calls("gather", {"cut.shards=4", "cut.micro_batches=1"}), with(gather, 2 * 29));
  EXPECT_EQ(calls("ring"),
            with({{{Operation::kSend, "keys and values"}, 2 * kPasses},
                  {{Operation::kRecv, "keys and values"}, 2 * kPasses},
                  {{Operation::kReduceScatter, "key and value gradients"}, kPasses}}));
  EXPECT_EQ(calls("ulysses"),
            with({{{Operation::kAllToAll, "attention heads"}, 2 * kPasses},
                  {{Operation::kAllToAll, "attention head gradients"}, 2 * kPasses}}));
}

// A number of ranks that is no power of two sums each shard before data-parallel ranks go on.
TEST(CpTest, ThreeRanksHaveTheBitsOfSingle) {
  const Assignments cut = {"cut.shards=2", "cut.tokens=6", "data.context=24", "model.heads=3",
                           "model.width=48"};
  const auto single = RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), cut);
  for (const char* attention : {"gather", "ring", "ulysses"}) {
    for (const char* dp : {"mesh.dp=1", "mesh.dp=2"}) {
      SCOPED_TRACE(absl::StrCat(attention, " ", dp));
      const auto ranks = Train(
          With(cut, {"mesh.cp=3", dp, absl::StrCat("context_parallel.attention=", attention)}));
      ExpectSameBits(ranks, single);
      ExpectPredictedCosts(ranks);
    }
  }
}

// A ring never holds the keys and values of three ranks at a time.
TEST(CpTest, ARingNeverHoldsAllKeys) {
  constexpr int64_t kSamples = 4, kTokens = 256, kWidth = 32;
  constexpr int64_t kAll = kSamples * kTokens * 2 * kWidth * sizeof(float);
  const auto peak = [](const std::string& attention) {
    const auto ranks =
        Train({"mesh.dp=1", "mesh.cp=4", absl::StrCat("batch.size=", kSamples),
               absl::StrCat("data.context=", kTokens), absl::StrCat("model.width=", kWidth),
               absl::StrCat("context_parallel.attention=", attention)});
    ExpectPredictedCosts(ranks);
    return ranks[0].memory.peak(MemoryClass::kCommunication);
  };
  EXPECT_LT(peak("ring"), kAll * 3 / 4);
  EXPECT_GT(peak("gather"), kAll);
}

// Where parameters are divided too, checkpoints hold the shards of ranks along cp.
TEST(CpTest, AnyMeshResumesAnyOther) {
  const std::string config = SmallGptConfig() + "[checkpoint]\nevery = 1\n";
  const Assignments cut = {"cut.shards=2", "cut.tokens=4"};
  const auto single = RunStrategy(SingleStrategy(), MakeModel, config, cut);
  RunStrategy(CpStrategy(), MakeModel, config,
              With(cut, {"mesh.dp=2", "mesh.cp=4", "train.steps=1"}));
  ResumeStrategy(FsdpStrategy(), MakeModel, config,
                 With(cut, {"mesh.dp=2", "mesh.cp=2", "train.steps=2"}));
  ResumeStrategy(SingleStrategy(), MakeModel, config, With(cut, {"train.steps=3"}));
  const auto last =
      ResumeStrategy(CpStrategy(), MakeModel, config, With(cut, {"mesh.dp=1", "mesh.cp=2"}));
  EXPECT_EQ(last[0].losses, std::vector<double>{single[0].losses[3]});
  EXPECT_EQ(last[0].parameter_hash, single[0].parameter_hash);
}

// Four ranks train on a sequence that is too long for one of them.
TEST(CpTest, DividesASequenceThatDoesNotFit) {
  const Assignments sequence = {"data.context=16384",   "batch.size=1",
                                "model.layers=2",       "model.heads=1",
                                "model.width=16",       "model.dropout=0",
                                "cut.tokens=4",         "train.steps=1",
                                "validation.batches=1", "validation.batch_size=1",
                                "memory.limit=20000000"};
  const auto ranks = Train(With(
      sequence, {"mesh.dp=1", "mesh.cp=4", "run.threads=1", "context_parallel.attention=ring"}));
  for (const RankReport& rank : ranks) EXPECT_LT(rank.memory.peak_total(), 20000000);
  EXPECT_THAT(
      std::string(FailStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), sequence).message()),
      HasSubstr("memory.limit"));
}

}  // namespace
}  // namespace lockstep
