// Conformance with torchgpipe, "gpipe": what its users see of the whole.
//
// Not here:
//   - a container with length, iteration and indexing, and its attributes: a model is a list of
//     blocks (core/nn/model.h), and what a strategy is made with is in the configuration;
//   - moving partitions between devices, and which device inputs and outputs are on: a rank has its
//     device, the first stage takes batches in, the last one has the loss;
//   - tuples as types: blocks hand on lists of tensors (several_tensors_test.cc);
//   - one parameter in two partitions: that is refused there, and works here (tied embeddings).

#include "strategies/gpipe/gpipe.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/schedules/named_schedules.h"
#include "strategies/single/single.h"
#include "strategies/stages/testing/probe.h"
#include "strategies/stages/testing/tested_pipeline.h"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Refusal(const Assignments& assignments) {
  return std::string(
      FailStrategy(GPipeStrategy(), MakeModel, SmallGptConfig(), assignments).message());
}

// --- what is refused
// ------------------------------------------------------------------------------

TEST(GPipeRefusalTest, BalanceOfWrongLengthPointsToAutomaticBalancing) {
  EXPECT_THAT(Refusal({"mesh.pp=2", "pipeline.balance=[3]"}),
              AllOf(HasSubstr("pipeline.balance = [3] has 1 stages, but mesh.pp is 2"),
                    HasSubstr("with \"cost\", \"time\" or \"size\" in its place")));
  EXPECT_THAT(Refusal({"mesh.pp=2", "pipeline.balance=[3, 3]"}),
              AllOf(HasSubstr("does not sum up to the model's 4 blocks"),
                    HasSubstr("with \"cost\", \"time\" or \"size\" in its place")));
}

TEST(GPipeRefusalTest, BalanceLessThanOne) {
  EXPECT_THAT(Refusal({"mesh.pp=2", "pipeline.balance=[4, 0]"}), HasSubstr("without blocks"));
  EXPECT_THAT(Refusal({"mesh.pp=2", "pipeline.balance=[5, -1]"}), HasSubstr("without blocks"));
}

TEST(GPipeRefusalTest, ChunksLessThanOne) {
  EXPECT_THAT(Refusal({"mesh.pp=2", "cut.micro_batches=0"}), HasSubstr("cut.micro_batches"));
  EXPECT_THAT(Refusal({"mesh.pp=2", "cut.micro_batches=-1"}), HasSubstr("cut.micro_batches"));
}

TEST(GPipeRefusalTest, CheckpointMode) {
  EXPECT_THAT(Refusal({"mesh.pp=2", "recompute.micro_batches=INVALID_CHECKPOINT"}),
              AllOf(HasSubstr("recompute.micro_batches"), HasSubstr("except_last")));
}

TEST(GPipeRefusalTest, MorePartitionsThanLayers) {
  EXPECT_THAT(Refusal({"mesh.pp=5"}), HasSubstr("mesh.pp is 5, but the model has 4 blocks"));
}

class Skipper : public Block {
 public:
  Skipper(const std::string& name, const std::vector<std::string>& stashes,
          const std::vector<std::string>& pops)
      : Block(name) {
    for (const std::string& skip : stashes) DeclareStash(skip, 1);
    for (const std::string& skip : pops) DeclarePop(skip);
  }

 protected:
  Variables Forward(Pass&, Variables inputs) override { return inputs; }
};

TEST(GPipeRefusalTest, VerifySkippablesTellsAllFaults) {
  const ModelFactory make_model = [](const Config&, const Dataset&) -> absl::StatusOr<Model> {
    Model model;
    model.blocks.push_back(std::make_unique<Skipper>("a", std::vector<std::string>{"lost"},
                                                     std::vector<std::string>{}));
    model.blocks.push_back(
        std::make_unique<Skipper>("b", std::vector<std::string>{}, std::vector<std::string>{"no"}));
    return model;
  };
  const absl::Status status =
      FailStrategy(GPipeStrategy(), make_model, SmallGptConfig(), {"mesh.pp=2"});
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("a: skip 'lost' is stashed, but never popped"),
                    HasSubstr("b: skip 'no' is popped, but no earlier block stashes it")));
}

// There an empty model is the identity; here a model ends in logits.
TEST(GPipeRefusalTest, EmptyModule) {
  const ModelFactory make_model = [](const Config&, const Dataset&) -> absl::StatusOr<Model> {
    return Model();
  };
  EXPECT_THAT(
      std::string(FailStrategy(GPipeStrategy(), make_model, SmallGptConfig(), {}).message()),
      HasSubstr("0 blocks"));
}

// --- batches and micro-batches
// --------------------------------------------------------------------

void ExpectBitsOfSingle(const Assignments& cut, const std::string& config = SmallGptConfig()) {
  const auto single = RunStrategy(SingleStrategy(), MakeModel, config, cut);
  for (const char* schedule : {"pipeline.schedule=gpipe", "pipeline.schedule=1f1b"}) {
    ExpectSameBits(
        RunStrategy(GPipeStrategy(), MakeModel, config, With(cut, {"mesh.pp=3", schedule})),
        single);
  }
}

TEST(GPipeBatchTest, BatchSizeIndivisible) {
  ExpectBitsOfSingle({"batch.size=7", "cut.micro_batches=4"});
}

TEST(GPipeBatchTest, BatchSizeSmall) {
  ExpectBitsOfSingle({"batch.size=2", "cut.micro_batches=4"});
}

TEST(GPipeBatchTest, OneMicroBatch) { ExpectBitsOfSingle({"cut.micro_batches=1"}); }

// --- checkpointing
// --------------------------------------------------------------------------------

// How often a stage of two is recomputed in a step of two micro-batches.
int64_t Recomputed(Checkpointing checkpointing, const Schedule& schedule) {
  Events events;
  const auto make_model = [&] {
    return MakeProbes({Recorded("0", events), Recorded("1", events)});
  };
  const auto outcome =
      RunPipeline({.make_model = make_model, .schedule = schedule, .checkpointing = checkpointing});
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(events.Count("F1 0") + events.Count("F1 1"), 2);
  EXPECT_EQ(events.Count("F0' 0") + events.Count("F0' 1"),
            events.Count("F1' 0") + events.Count("F1' 1"));
  return events.Count("F1' 0") + events.Count("F1' 1");
}

TEST(GPipeCheckpointTest, CountsRecomputes) {
  for (const Schedule& schedule : {GPipeSchedule(2, 2), OneForwardOneBackwardSchedule(2, 2)}) {
    EXPECT_EQ(Recomputed(Checkpointing::kAlways, schedule), 2);
    EXPECT_EQ(Recomputed(Checkpointing::kExceptLast, schedule), 1);
    EXPECT_EQ(Recomputed(Checkpointing::kNever, schedule), 0);
  }
}

TEST(GPipeCheckpointTest, NothingIsRecomputedInEvaluation) {
  Events events;
  const auto outcome =
      RunPipeline({.make_model =
                       [&] {
                         return MakeProbes({Recorded("0", events), Recorded("1", events)});
                       },
                   .schedule = GPipeSchedule(2, 2),
                   .checkpointing = Checkpointing::kAlways,
                   .steps = 0},
                  [](RankUnderTest& rank) { rank.runner().Evaluate(rank.MakeBatch(0, 4)); });
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(events.all(), ElementsAre("F0 0", "F1 0"));
}

// --- errors
// ---------------------------------------------------------------------------------------

TEST(GPipeExceptionTest, SurfacesAndStopsEarly) {
  Events events;
  ProbeActions fails;
  fails.forward = [](Pass&) { throw StatusException(absl::DataLossError("broken")); };
  const auto outcome =
      RunPipeline({.make_model =
                       [&] {
                         return MakeProbes({Recorded("0", events), fails, Recorded("2", events)});
                       },
                   .schedule = GPipeSchedule(3, 8)});
  EXPECT_EQ(outcome.status().message(), "rank 1: broken");
  EXPECT_EQ(events.Count("F2 0"), 0);
  EXPECT_EQ(events.Count("B0 0"), 0);
}

// --- what it holds
// --------------------------------------------------------------------------------

// All parameters, of all partitions, under the names of the model: a checkpoint is single's.
TEST(GPipeStateTest, ParametersAndStateDictKeysAreThoseOfTheModel) {
  for (const std::string& small : {SmallGptConfig(), SmallResNetConfig()}) {
    const std::string config = small + "[checkpoint]\nevery = 1\n";
    const Assignments cut = {"cut.micro_batches=2"};
    const auto single = RunStrategy(SingleStrategy(), MakeModel, config, cut);
    RunStrategy(GPipeStrategy(), MakeModel, config, With(cut, {"mesh.pp=3", "train.steps=2"}));
    ResumeStrategy(SingleStrategy(), MakeModel, config, With(cut, {"train.steps=3"}));
    const auto last = ResumeStrategy(GPipeStrategy(), MakeModel, config,
                                     With(cut, {"mesh.pp=2", "pipeline.schedule=interleaved_1f1b",
                                                "pipeline.stages_per_rank=2"}));
    EXPECT_EQ(last[0].losses, std::vector<double>({single[0].losses.back()}));
    EXPECT_EQ(last[0].parameter_hash, single[0].parameter_hash);
  }
}

// Balanced by what was measured: the profile leaves nothing behind.
TEST(GPipeBalanceTest, MeasuringLeavesModelAndStateAsTheyWere) {
  for (const std::string& config : {SmallGptConfig(), SmallResNetConfig()}) {
    const Assignments cut = {"cut.micro_batches=3"};
    const auto single = RunStrategy(SingleStrategy(), MakeModel, config, cut);
    for (const char* balance : {"pipeline.balance=time", "pipeline.balance=size"}) {
      const auto gpipe = RunStrategy(GPipeStrategy(), MakeModel, config,
                                     With(cut, {"mesh.pp=2", "pipeline.schedule=1f1b", balance}));
      ExpectSameBits(gpipe, single);
      for (const RankReport& report : gpipe) ExpectPredictedTraffic(report);
    }
  }
}

}  // namespace
}  // namespace lockstep
