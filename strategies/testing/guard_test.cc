// Bits that flip in the memory of one rank of a run, and the guard that compares replicas.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/run/strategy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/ddp/ddp.h"
#include "strategies/engine/preset.h"
#include "strategies/testing/run_strategy.h"
#include "strategies/testing/wrapped_strategy.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

// A bit of the state of one rank that is another after a step, counted from 0.
struct Flip {
  int rank = 0;
  int64_t step = 0;
  std::string tensor;
};

// A strategy on a machine whose memory loses a bit.
class Flipping final : public WrappedStrategy {
 public:
  Flipping(std::unique_ptr<Strategy> strategy, int rank, Flip flip)
      : WrappedStrategy(std::move(strategy)), rank_(rank), flip_(std::move(flip)) {}

  StepResult TrainStep(int64_t step, BatchSource& batches) override {
    const StepResult result = WrappedStrategy::TrainStep(step, batches);
    if (rank_ != flip_.rank || step != flip_.step) return result;
    for (const StateTensor& part : State()) {
      if (part.name == flip_.tensor) part.tensor.raw()[1] ^= std::byte{4};
    }
    return result;
  }

 private:
  int rank_;
  Flip flip_;
};

StrategyDefinition WithFlip(StrategyDefinition strategy, const Flip& flip) {
  return Wrapped(std::move(strategy), [flip](std::unique_ptr<Strategy> made, Rank& rank) {
    return std::make_unique<Flipping>(std::move(made), rank.rank, flip);
  });
}

constexpr char kWeight[] = "blocks.0.attention.qkv.weight";

std::string Failure(const Flip& flip, const Assignments& assignments) {
  return std::string(FailStrategy(WithFlip(DdpStrategy(), flip), MakeModel, SmallGptConfig(),
                                  With({"cut.micro_batches=1"}, assignments))
                         .message());
}

TEST(GuardTest, AFlippedBitIsSeenInItsStepWithTensorAndRank) {
  for (const std::string& tensor :
       {std::string(kWeight), absl::StrCat("optimizer.first_moment.", kWeight)}) {
    EXPECT_THAT(Failure({.rank = 1, .step = 1, .tensor = tensor}, {"mesh.dp=3", "guard.every=1"}),
                HasSubstr(absl::StrCat("step 2: wrong bits: '", tensor, "' on rank 1 is not")));
  }
}

TEST(GuardTest, ReplicasThatHavePartedAreSeenWithinTheInterval) {
  EXPECT_THAT(Failure({.rank = 2, .step = 0, .tensor = kWeight}, {"mesh.dp=3", "guard.every=3"}),
              HasSubstr(absl::StrCat("step 3: wrong bits: '", kWeight, "' on rank 2")));
  // A checkpoint is compared first.
  EXPECT_THAT(Failure({.rank = 2, .step = 0, .tensor = kWeight},
                      {"mesh.dp=3", "guard.every=1000", "checkpoint.every=2"}),
              HasSubstr(absl::StrCat("step 2: wrong bits: '", kWeight, "' on rank 2")));
}

TEST(GuardTest, TwoReplicasAreBothNamed) {
  EXPECT_THAT(Failure({.rank = 1, .step = 1, .tensor = kWeight}, {"mesh.dp=2", "guard.every=1"}),
              HasSubstr("differs between its replicas on the ranks 0, 1, of which none has a"));
}

TEST(GuardTest, NothingIsReportedThatDidNotHappen) {
  const std::string config = SmallGptConfig();
  for (const Assignments& mesh :
       std::vector<Assignments>{{"mesh.dp=3"},
                                {"mesh.replicas=2", "mesh.dp=2", "data_parallel.shard=parameters"},
                                {"mesh.pp=2", "mesh.tp=2", "mesh.dp=2"}}) {
    const Assignments cut = {"cut.shards=4", "cut.features=2", "cut.micro_batches=1"};
    const Assignments common = mesh.size() == 1 ? Assignments{"cut.micro_batches=1"} : cut;
    const auto plain =
        RunStrategy(EnginePreset("engine", {}), MakeModel, config, With(common, mesh));
    const auto guarded = RunStrategy(EnginePreset("engine", {}), MakeModel, config,
                                     With(With(common, mesh), {"guard.every=1"}));
    EXPECT_EQ(guarded[0].losses, plain[0].losses);
    EXPECT_EQ(guarded[0].parameter_hash, plain[0].parameter_hash);
  }
}

}  // namespace
}  // namespace lockstep
