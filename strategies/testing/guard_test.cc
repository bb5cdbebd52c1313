// Bits that flip in the memory of one rank of a run, and the guard that compares replicas.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/run/strategy/strategy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/ddp/ddp.h"
#include "strategies/engine/preset.h"
#include "strategies/fsdp/fsdp.h"
#include "strategies/lora/lora.h"
#include "strategies/mesh/mesh.h"
#include "strategies/naive_ddp/naive_ddp.h"
#include "strategies/presets.h"
#include "strategies/testing/flipping.h"
#include "strategies/testing/run_strategy.h"
#include "strategies/testing/wrapped_strategy.h"
#include "strategies/zero1/zero1.h"
#include "strategies/zero2/zero2.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A bit of the state of one rank that is another after a step, counted from 0, and after each
// repetition of it, as if the optimizer's arithmetic were wrong.
struct LastingFlip {
  int rank = 0;
  int64_t step = 0;
  std::string tensor;
};

// A strategy on such a machine.
class LastinglyFlipping final : public WrappedStrategy {
 public:
  LastinglyFlipping(std::unique_ptr<Strategy> strategy, int rank, LastingFlip flip)
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
  LastingFlip flip_;
};

StrategyDefinition WithLastingFlip(StrategyDefinition strategy, const LastingFlip& flip) {
  return Wrapped(std::move(strategy), [flip](std::unique_ptr<Strategy> made, Rank& rank) {
    return std::make_unique<LastinglyFlipping>(std::move(made), rank.rank, flip);
  });
}

constexpr char kWeight[] = "blocks.0.attention.qkv.weight";

std::string Failure(const LastingFlip& flip, const Assignments& assignments) {
  return std::string(FailStrategy(WithLastingFlip(DdpStrategy(), flip), MakeModel, SmallGptConfig(),
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

// The error of a run of three ranks whose steps are all repeated. 10 is the index of some tensor
// of a pass that has 20 or more.
std::string FailureOfRepeated(const StrategyDefinition& strategy, Flip flip,
                              const Assignments& more = {}) {
  flip.rank = 1;
  flip.step = 1;
  flip.tensor = 10;
  flip.bit = 12345;
  return std::string(
      FailStrategy(
          WithFlip(strategy, flip, 20), MakeModel, SmallGptConfig(),
          With({"cut.micro_batches=1", "mesh.dp=3", "guard.every=1", "validation.every=1"}, more))
          .message());
}

TEST(GuardTest, AFlipInAPassIsSeenInItsStepAndOnItsRank) {
  for (const bool shards : {false, true}) {
    const StrategyDefinition strategy = shards ? FsdpStrategy() : DdpStrategy();
    // Where ranks send each other weights, a wrong one shows on others too.
    const std::string rank = absl::StrCat(shards ? ", seen first" : "", " on rank 1");
    EXPECT_THAT(FailureOfRepeated(strategy, {.target = Flip::Target::kPass}),
                AllOf(HasSubstr("step 2: wrong bits: the output of "),
                      HasSubstr(rank + " came out differently in the step, as two")));
    EXPECT_THAT(FailureOfRepeated(strategy, {.target = Flip::Target::kPass, .time = 1}),
                AllOf(HasSubstr("step 2: wrong bits: the output of "),
                      HasSubstr(rank + " came out differently in its repetition, as")));
  }
}

// How many tensors of a target a step of rank 1 of three has.
uint64_t TensorsOf(Flip::Target target, const StrategyDefinition& strategy,
                   const std::string& config, const Assignments& mesh) {
  const auto tensors = std::make_shared<uint64_t[]>(3);
  RunStrategy(WithCount(strategy, target, tensors), MakeModel, config,
              With(mesh, {"train.steps=1"}));
  return tensors[1];
}

// After the sum all ranks have the same wrong bits. Until then a gradient waits for those of the
// rank's other shards and of its bucket, and losses and batch statistics for the end of the step.
TEST(GuardTest, AFlipInWhatWaitsForOtherRanksIsSeenOnItsRank) {
  struct Case {
    StrategyDefinition strategy;
    Assignments mesh;
    std::string where = " on rank 1";
  };
  for (const Case& each : std::vector<Case>{
           {DdpStrategy(), {"mesh.dp=3"}},
           {NaiveDdpStrategy(), {"train.deferred_batch_norm=false", "mesh.dp=3"}},
           {Zero1Strategy(), {"mesh.dp=3"}, ", seen first on rank 1"},
           {Zero2Strategy(),
            {"batch.size=16", "cut.shards=4", "mesh.dp=2"},
            ", seen first on rank 1"},
           {EnginePreset("engine", {}), {"mesh.pp=1", "mesh.replicas=3", "mesh.dp=1"}},
           {EnginePreset("engine", {}),
            {"data_parallel.shard=gradients", "mesh.pp=1", "mesh.replicas=3", "mesh.dp=1"}}}) {
    SCOPED_TRACE(absl::StrCat(each.strategy.name, " ", each.mesh.front()));
    const Assignments mesh =
        With({"batch.size=12", "cut.shards=6", "cut.micro_batches=1", "train.steps=2"}, each.mesh);
    const auto failure = [&](const std::string& config, Flip flip, uint64_t tensors) {
      flip.rank = 1;
      flip.step = 1;
      flip.bit = 12349;  // of an exponent
      return std::string(FailStrategy(WithFlip(each.strategy, flip, tensors), MakeModel, config,
                                      With(mesh, {"guard.every=1"}))
                             .message());
    };
    const auto message = [&](const std::string& what) {
      return absl::StrCat(what, " handed over", each.where,
                          " came out differently in the step, as");
    };
    // Some of both shards, but not of the embedding: where a shard lacks a token its gradient is 0,
    // beside which the other's swallows what flips.
    const uint64_t gradients =
        TensorsOf(Flip::Target::kGradient, each.strategy, SmallGptConfig(), mesh);
    const bool has_whole_sums = each.strategy.name != "zero2";
    for (uint64_t tensor = 3; has_whole_sums && tensor < gradients; tensor += 7) {
      SCOPED_TRACE(absl::StrCat("gradient ", tensor, " of ", gradients));
      EXPECT_THAT(
          failure(SmallGptConfig(), {.target = Flip::Target::kSeenGradient, .tensor = tensor},
                  gradients),
          AllOf(HasSubstr("step 2: wrong bits: the gradient of '"), HasSubstr(message("'"))));
    }
    const uint64_t statistics =
        TensorsOf(Flip::Target::kStatistics, each.strategy, SmallResNetConfig(), mesh);
    for (uint64_t tensor = 0; tensor < statistics; ++tensor) {
      EXPECT_THAT(failure(SmallResNetConfig(),
                          {.target = Flip::Target::kStatistics, .tensor = tensor}, statistics),
                  HasSubstr(message("the batch statistics")));
    }
  }
}

// Nothing but the loss of the step comes of the losses of a micro-batch, which have been observed.
TEST(GuardTest, AFlipInALossIsSeenOnItsRank) {
  const Assignments mesh = {"cut.micro_batches=1", "mesh.dp=3", "train.steps=1"};
  const uint64_t tensors =
      TensorsOf(Flip::Target::kSeenPass, DdpStrategy(), SmallGptConfig(), mesh);
  int losses = 0;
  // They come between forward and backward.
  for (uint64_t tensor = tensors / 2 - 2; tensor < tensors / 2 + 2; ++tensor) {
    const Flip flip = {
        .target = Flip::Target::kSeenPass, .rank = 1, .step = 0, .tensor = tensor, .bit = 29};
    const std::string message(FailStrategy(WithFlip(DdpStrategy(), flip, tensors), MakeModel,
                                           SmallGptConfig(), With(mesh, {"guard.every=1"}))
                                  .message());
    EXPECT_THAT(message, HasSubstr(" on rank 1 came out differently in the step, as two"));
    losses += absl::StrContains(message, "step 1: wrong bits: the loss handed over on rank 1");
  }
  EXPECT_EQ(losses, 1);
}

TEST(GuardTest, AFlipInAStateThatNobodyElseHoldsIsSeen) {
  EXPECT_THAT(FailureOfRepeated(FsdpStrategy(), {.target = Flip::Target::kState}),
              AllOf(HasSubstr("step 2: wrong bits: the gradient or the update of '"),
                    HasSubstr("', seen first on rank 1 came out differently in the step, as two")));
  // Between two steps.
  EXPECT_THAT(FailureOfRepeated(FsdpStrategy(), {.target = Flip::Target::kIdleState}),
              AllOf(HasSubstr("step 3: wrong bits: '"),
                    HasSubstr("' on rank 1 has changed in memory since the step before")));
}

// Nothing but the last checkpoint comes behind it, which would have the wrong bits.
TEST(GuardTest, AFlipInTheLastValidationIsSeenBeforeTheStateIsSaved) {
  for (const Assignments& end :
       std::vector<Assignments>{{"train.steps=2"}, {"train.steps=2", "guard.every=1000"}}) {
    EXPECT_THAT(FailureOfRepeated(FsdpStrategy(), {.target = Flip::Target::kIdleState}, end),
                AllOf(HasSubstr("step 2: wrong bits: '"),
                      HasSubstr("' on rank 1 has changed in memory since that step")));
  }
}

// A strategy on a machine that gets a loss wrong in one of the batches that rank 1 evaluates, in
// each of them where `number`, counted from 0, is -1.
class WrongInValidation final : public WrappedStrategy {
 public:
  WrongInValidation(std::unique_ptr<Strategy> strategy, int rank, int number)
      : WrappedStrategy(std::move(strategy)), rank_(rank), number_(number) {}

  EvaluationSums Evaluate(const Batch& batch) override {
    EvaluationSums sums = WrappedStrategy::Evaluate(batch);
    const int evaluated = evaluated_++;
    if (rank_ != 1) return sums;
    if (number_ == evaluated) sums.correct += 1;
    if (number_ < 0) sums.loss.Add(static_cast<float>(evaluated));
    return sums;
  }

 private:
  const int rank_, number_;
  int evaluated_ = 0;
};

// Each rank evaluates one batch in each of the validations, behind the steps 1 to 4.
TEST(GuardTest, AWrongValidationIsSeenBehindTheStepsThatAreChecked) {
  const auto failure = [](const StrategyDefinition& strategy, int number, const Assignments& more) {
    const auto wrapped = Wrapped(strategy, [=](std::unique_ptr<Strategy> made, Rank& rank) {
      return std::make_unique<WrongInValidation>(std::move(made), rank.rank, number);
    });
    return std::string(FailStrategy(wrapped, MakeModel, SmallGptConfig(),
                                    With({"cut.micro_batches=1", "mesh.dp=3", "validation.every=1",
                                          "validation.batches=3"},
                                         more))
                           .message());
  };
  const auto message = [](int step, const std::string& rest) {
    return HasSubstr(absl::StrCat("step ", step, ": wrong bits: the validation behind it", rest));
  };
  const Assignments each = {"guard.every=1"};
  EXPECT_THAT(failure(DdpStrategy(), 0, each),
              message(1, " on rank 1 came out differently at first, as two repetitions agree"));
  EXPECT_THAT(failure(DdpStrategy(), 3, each),
              message(2, " on rank 1 came out differently in its repetition, as another one"));
  EXPECT_THAT(failure(FsdpStrategy(), -1, each),
              message(1, ", seen first on rank 1 came out differently each time"));
  // Behind the steps 1, 2, 3 once, and behind the last one again.
  EXPECT_THAT(failure(DdpStrategy(), 3, {"guard.every=1000"}),
              message(4, " on rank 1 came out differently at first"));
  // Before the first step.
  EXPECT_THAT(failure(DdpStrategy(), 0, {"guard.every=1000", "validation.at_start=true"}),
              message(0, " on rank 1 came out differently at first"));
}

// All runs of a step compute with it, and its bits are in no checkpoint.
TEST(GuardTest, AFlipInTheBaseUnderAdaptersIsSeenWithinTheInterval) {
  const Assignments adapters = {"lora.layers=[\"*.qkv\"]", "lora.rank=2", "guard.every=3"};
  uint64_t index = 0;
  std::string name;
  OnStrategies(LoraStrategy(), MakeModel, SmallGptConfig(), adapters,
               [&](const TrainingRun&, Rank&, Strategy& strategy) {
                 const std::vector<StateTensor> state = strategy.State();
                 const auto frozen = std::ranges::find_if(state, &StateTensor::is_frozen);
                 ASSERT_NE(frozen, state.end());
                 index = static_cast<uint64_t>(frozen - state.begin());
                 name = frozen->name;
               });
  for (const int64_t step : {1, 2}) {
    const Flip flip = {
        .target = Flip::Target::kRestingState, .step = step, .tensor = index, .bit = 77};
    EXPECT_THAT(
        std::string(
            FailStrategy(WithFlip(LoraStrategy(), flip), MakeModel, SmallGptConfig(), adapters)
                .message()),
        HasSubstr(absl::StrCat("step 3: wrong bits: '", name,
                               "' on rank 0, which no step changes, has changed in memory")));
  }
}

// A strategy on a machine that changes a bit of what a change of mesh has brought to rank 1.
class FlippingWhatWasMoved final : public WrappedStrategy {
 public:
  FlippingWhatWasMoved(std::unique_ptr<Strategy> strategy, int rank)
      : WrappedStrategy(std::move(strategy)), rank_(rank) {}

  void Restored() override {
    if (std::exchange(is_moved_, true) || rank_ != 1) return WrappedStrategy::Restored();
    for (const StateTensor& part : State()) {
      if (part.tensor.elements() == 0) continue;
      part.tensor.raw()[1] ^= std::byte{4};
      break;
    }
    WrappedStrategy::Restored();
  }

 private:
  const int rank_;
  bool is_moved_ = false;
};

TEST(GuardTest, AChangeOfMeshIsChecked) {
  const Assignments legs = {"batch.size=16", "cut.shards=4",
                            "train.legs=[\"2: ddp dp=4\", \"2: fsdp dp=2\"]", "validation.every=1",
                            "guard.every=1"};
  const auto failure = [&](const std::vector<StrategyDefinition>& strategies) {
    return std::string(FailStrategy(MeshStrategy(), MakeModel, SmallGptConfig(), legs,
                                    /*devices=*/nullptr, strategies)
                           .message());
  };
  // Between the last step of a leg and the move.
  std::vector<StrategyDefinition> strategies = LegStrategies();
  for (StrategyDefinition& each : strategies) {
    each = WithFlip(std::move(each), {.target = Flip::Target::kIdleState, .rank = 1, .step = 1});
  }
  EXPECT_THAT(failure(strategies), AllOf(HasSubstr("step 2: wrong bits: '"),
                                         HasSubstr("' on rank 1 has changed in memory since")));
  // On its way.
  strategies = LegStrategies();
  for (StrategyDefinition& each : strategies) {
    if (each.name != "fsdp") continue;
    each = Wrapped(std::move(each), [](std::unique_ptr<Strategy> made, Rank& rank) {
      return std::make_unique<FlippingWhatWasMoved>(std::move(made), rank.rank);
    });
  }
  EXPECT_THAT(failure(strategies),
              AllOf(HasSubstr("step 2: wrong bits: '"),
                    HasSubstr("' came to the mesh \"fsdp pp=1,dp=2,tp=1\" with other bits than")));
}

// The same where each rank repeats another's work.
std::string FailureOfExchanged(const StrategyDefinition& strategy, Flip flip, int ranks,
                               int every = 1) {
  flip.tensor = 10;
  flip.bit = 12345;
  return std::string(
      FailStrategy(WithFlip(strategy, flip, 20), MakeModel, SmallGptConfig(),
                   {"cut.micro_batches=1", absl::StrCat("mesh.dp=", ranks),
                    absl::StrCat("guard.every=", every), "guard.repeat_on=\"other_rank\""})
          .message());
}

TEST(GuardTest, AnotherRankSeesAFlipInAStep) {
  for (const int rank : {0, 1, 2}) {
    EXPECT_THAT(FailureOfExchanged(DdpStrategy(),
                                   {.target = Flip::Target::kPass, .rank = rank, .step = 1}, 3),
                AllOf(HasSubstr("step 2: wrong bits: the output of "),
                      HasSubstr(absl::StrCat(" on rank ", rank,
                                             " came out differently in the step, as two"))));
    // In the step that it repeats for another.
    EXPECT_THAT(
        FailureOfExchanged(DdpStrategy(),
                           {.target = Flip::Target::kPass, .rank = rank, .step = 1, .time = 1}, 3),
        AllOf(HasSubstr("step 2: wrong bits: the output of "),
              HasSubstr(
                  absl::StrCat(" on rank ", rank, " came out differently in its repetition, as"))));
  }
}

// What no repetition on the same rank can see.
TEST(GuardTest, ARankThatIsWrongEachTimeIsNamedByTwoOthers) {
  for (const int rank : {0, 1, 2}) {
    const Flip always = {.target = Flip::Target::kPass, .rank = rank, .step = 1, .time = -1};
    EXPECT_THAT(FailureOfExchanged(DdpStrategy(), always, 3),
                AllOf(HasSubstr("step 2: wrong bits: the output of "),
                      HasSubstr(absl::StrCat(" on rank ", rank, " came out differently"))));
  }
  EXPECT_THAT(
      FailureOfExchanged(DdpStrategy(),
                         {.target = Flip::Target::kPass, .rank = 1, .step = 1, .time = -1}, 2),
      AllOf(HasSubstr("step 2: wrong bits: the output of "),
            HasSubstr(" on the ranks 0, 1 came out differently on two ranks each time, of "
                      "which none has a majority")));
}

// All replicas take the wrong gradients alike, so only the repetition shows the fault. The last
// step of a run is repeated, too: it has four.
TEST(GuardTest, AProcessorThatHasGoneWrongIsSeenWithinTheInterval) {
  for (const int64_t step : {0, 1, 2, 3}) {
    SCOPED_TRACE(step);
    EXPECT_THAT(
        FailureOfExchanged(DdpStrategy(),
                           {.target = Flip::Target::kPass,
                            .rank = 1,
                            .step = step,
                            .time = -1,
                            .steps = Flip::kForGood},
                           /*ranks=*/3, /*every=*/3),
        AllOf(HasSubstr(absl::StrCat("step ", step < 3 ? 3 : 4, ": wrong bits: the output of ")),
              HasSubstr(" on rank 1 came out differently each time on that rank")));
  }
}

// At these places a wrong bit of a gradient moves the sum over ranks alike whichever role has it:
// state, loss and norm of the repetition agree, and only the gradient before it is summed does not.
TEST(GuardTest, AProcessorThatIsAsWrongInTheRoleThatItRepeatsIsSeen) {
  const Assignments mesh = {"cut.micro_batches=1", "mesh.dp=3", "train.steps=2"};
  struct Place {
    uint64_t tensor = 0, bit = 0;
  };
  for (const Place& place : {Place{2, 2}, {3, 3203}, {9, 1}, {17, 1}}) {
    SCOPED_TRACE(absl::StrCat("tensor ", place.tensor, ", bit ", place.bit));
    const auto with_flip_on = [&](int rank) {
      return WithFlip(DdpStrategy(),
                      {.target = Flip::Target::kGradient,
                       .rank = rank,
                       .step = 1,
                       .tensor = place.tensor,
                       .bit = place.bit,
                       .time = -1,
                       .steps = Flip::kForGood},
                      /*tensors=*/20);
    };
    const auto hash_with = [&](const StrategyDefinition& strategy) {
      return RunStrategy(strategy, MakeModel, SmallGptConfig(), mesh)[0].parameter_hash;
    };
    const std::string wrong = hash_with(with_flip_on(1));
    EXPECT_NE(wrong, hash_with(DdpStrategy()));
    EXPECT_EQ(wrong, hash_with(with_flip_on(2)));
    EXPECT_THAT(
        std::string(FailStrategy(with_flip_on(1), MakeModel, SmallGptConfig(),
                                 With(mesh, {"guard.every=2", "guard.repeat_on=\"other_rank\""}))
                        .message()),
        AllOf(HasSubstr("step 2: wrong bits: the gradient of '"),
              HasSubstr("' on rank 1 came out differently each time on that rank")));
  }
}

TEST(GuardTest, ExchangedRanksChangeNoRunOfAnyKindOfModel) {
  const StrategyDefinition engine = EnginePreset("engine", {});
  for (const Assignments& mesh : std::vector<Assignments>{
           {"mesh.dp=2", "mesh.pp=2", "data_parallel.shard=optimizer", "cut.micro_batches=3"},
           {"mesh.replicas=2", "mesh.dp=2", "data_parallel.shard=parameters"},
           {"mesh.dp=3", "cut.shards=3"}}) {
    for (const SmallModel model : {SmallModel::kGpt, SmallModel::kResNet}) {
      SCOPED_TRACE(absl::StrCat(Name(model), " ", mesh[0]));
      const auto plain = RunStrategy(engine, MakeModel, SmallConfig(model), mesh);
      const auto guarded =
          RunStrategy(engine, MakeModel, SmallConfig(model),
                      With(mesh, {"guard.every=2", "guard.repeat_on=\"other_rank\""}));
      EXPECT_EQ(guarded[0].losses, plain[0].losses);
      EXPECT_EQ(guarded[0].parameter_hash, plain[0].parameter_hash);
    }
  }
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

TEST(GuardTest, RepeatedStepsChangeNoRunOfAnyKindOfModel) {
  const Assignments mesh = {"mesh.dp=2", "mesh.pp=2", "data_parallel.shard=optimizer",
                            "cut.micro_batches=3"};
  for (const SmallModel model :
       {SmallModel::kGpt, SmallModel::kLlama, SmallModel::kResNet, SmallModel::kUNet}) {
    SCOPED_TRACE(Name(model));
    const StrategyDefinition engine = EnginePreset("engine", {});
    const auto plain = RunStrategy(engine, MakeModel, SmallConfig(model), mesh);
    const auto guarded =
        RunStrategy(engine, MakeModel, SmallConfig(model), With(mesh, {"guard.every=2"}));
    EXPECT_EQ(guarded[0].losses, plain[0].losses);
    EXPECT_EQ(guarded[0].parameter_hash, plain[0].parameter_hash);
  }
}

}  // namespace
}  // namespace lockstep
