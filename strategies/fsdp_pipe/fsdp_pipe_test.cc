#include "strategies/fsdp_pipe/fsdp_pipe.h"

#include <string>
#include <tuple>
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

using ::testing::AllOf;
using ::testing::HasSubstr;

class FsdpPipeEqualsSingleTest : public ::testing::TestWithParam<std::tuple<SmallModel, int, int>> {
};

TEST_P(FsdpPipeEqualsSingleTest, ToTheBitAtThePredictedCost) {
  const auto [model, shards, micro_batches] = GetParam();
  const Assignments cut = {absl::StrCat("cut.micro_batches=", micro_batches)};
  const auto single = RunStrategy(SingleStrategy(), MakeModel, SmallConfig(model),
                                  With(cut, {absl::StrCat("cut.shards=", shards)}));
  for (const char* schedule : {"gpipe", "1f1b"}) {
    for (const char* unshard : {"step", "micro_batch"}) {
      for (const char* checkpoint : {"except_last", "never"}) {
        const Assignments options = {absl::StrCat("pipeline.schedule=", schedule),
                                     absl::StrCat("data_parallel.unshard=", unshard),
                                     absl::StrCat("recompute.micro_batches=", checkpoint)};
        SCOPED_TRACE(absl::StrJoin(options, " "));
        const auto ranks =
            RunStrategy(FsdpPipeStrategy(), MakeModel, SmallConfig(model),
                        With(With(cut, options), {"mesh.pp=2", absl::StrCat("mesh.dp=", shards)}));
        ASSERT_EQ(ranks.size(), static_cast<size_t>(2 * shards));
        ExpectSameBits(ranks, single);
        ExpectPredictedCosts(ranks);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, FsdpPipeEqualsSingleTest,
                         ::testing::Combine(::testing::Values(SmallModel::kGpt, SmallModel::kResNet,
                                                              SmallModel::kUNet),
                                            ::testing::Values(2, 3), ::testing::Values(1, 4)),
                         [](const auto& parameters) {
                           return absl::StrCat(Name(std::get<0>(parameters.param)), "Shards",
                                               std::get<1>(parameters.param), "MicroBatches",
                                               std::get<2>(parameters.param));
                         });

// A pipeline of one stage is its data-parallel strategy: bits, bytes and memory.
TEST(FsdpPipeTest, OneStageIsFsdp) {
  for (const std::string& config : {SmallGptConfig(), SmallResNetConfig()}) {
    for (const char* micro_batches : {"cut.micro_batches=1", "cut.micro_batches=3"}) {
      const Assignments mesh = {"mesh.dp=2", micro_batches};
      const auto fsdp = RunStrategy(FsdpStrategy(), MakeModel, config, mesh);
      const auto pipe =
          RunStrategy(FsdpPipeStrategy(), MakeModel, config,
                      With(mesh, {"pipeline.schedule=layerwise", "recompute.micro_batches=never",
                                  "data_parallel.unshard=micro_batch"}));
      ExpectSameBits(pipe, fsdp);
      for (size_t rank = 0; rank < fsdp.size(); ++rank) {
        EXPECT_EQ(pipe[rank].memory.peak_total(), fsdp[rank].memory.peak_total());
        ASSERT_EQ(pipe[rank].traffic.by_kind.size(), fsdp[rank].traffic.by_kind.size());
        for (const auto& predicted : fsdp[rank].prediction.traffic) {
          EXPECT_EQ(pipe[rank].traffic.Of(predicted.operation, predicted.label).wire_bytes,
                    fsdp[rank].traffic.Of(predicted.operation, predicted.label).wire_bytes);
        }
      }
    }
  }
}

// Each stage's shards lie within groups of dp ranks, and replicas of the groups sum their shards.
TEST(FsdpPipeTest, ReplicasOfShardsHaveTheBitsOfSingle) {
  for (const SmallModel model : {SmallModel::kGpt, SmallModel::kResNet}) {
    for (const char* micro_batches : {"cut.micro_batches=1", "cut.micro_batches=3"}) {
      const auto single = RunStrategy(SingleStrategy(), MakeModel, SmallConfig(model),
                                      {micro_batches, "cut.shards=4"});
      for (const char* unshard : {"step", "micro_batch"}) {
        SCOPED_TRACE(absl::StrCat(micro_batches, " ", unshard));
        const auto ranks = RunStrategy(FsdpPipeStrategy(), MakeModel, SmallConfig(model),
                                       {micro_batches, "mesh.pp=2", "mesh.replicas=2", "mesh.dp=2",
                                        absl::StrCat("data_parallel.unshard=", unshard)});
        ExpectSameBits(ranks, single);
        ExpectPredictedCosts(ranks);
      }
    }
  }
}

TEST(FsdpPipeTest, OtherSchedulesAndNumbersOfStages) {
  for (const SmallModel model : {SmallModel::kGpt, SmallModel::kResNet}) {
    const Assignments cut = {"cut.micro_batches=4", "batch.size=16"};
    const auto single =
        RunStrategy(SingleStrategy(), MakeModel, SmallConfig(model), With(cut, {"cut.shards=2"}));
    for (const Assignments& options :
         {Assignments{"mesh.pp=2", "pipeline.schedule=zb_h1"},
          Assignments{"mesh.pp=2", "pipeline.schedule=zb_v"},
          Assignments{"mesh.pp=2", "pipeline.schedule=dualpipe_v"},
          Assignments{"mesh.pp=2", "pipeline.schedule=interleaved_1f1b",
                      "pipeline.stages_per_rank=2"},
          Assignments{"mesh.pp=1", "pipeline.schedule=interleaved_1f1b",
                      "pipeline.stages_per_rank=3"},
          Assignments{"mesh.pp=3", "pipeline.schedule=1f1b"}, Assignments{"mesh.pp=1"}}) {
      for (const char* unshard :
           {"data_parallel.unshard=step", "data_parallel.unshard=micro_batch"}) {
        const bool halves = options.back() == "pipeline.schedule=zb_h1" ||
                            options.back() == "pipeline.schedule=zb_v" ||
                            options.back() == "pipeline.schedule=dualpipe_v";
        if (halves && unshard == std::string("data_parallel.unshard=micro_batch")) continue;
        SCOPED_TRACE(absl::StrCat(absl::StrJoin(options, " "), " ", unshard));
        const auto ranks = RunStrategy(FsdpPipeStrategy(), MakeModel, SmallConfig(model),
                                       With(With(cut, options), {"mesh.dp=2", unshard}));
        ExpectSameBits(ranks, single);
        for (const RankReport& report : ranks) ExpectPredictedTraffic(report);
      }
    }
  }
}

TEST(FsdpPipeTest, LessThanFp32GivesTheBitsOfSingle) {
  for (const SmallModel model : {SmallModel::kGpt, SmallModel::kResNet}) {
    const Assignments bf16 = {"precision.compute=bf16", "precision.reduce=fp32",
                              "cut.micro_batches=2"};
    const auto ranks = RunStrategy(FsdpPipeStrategy(), MakeModel, SmallConfig(model),
                                   With(bf16, {"mesh.pp=2", "mesh.dp=2"}));
    ExpectSameBits(ranks, RunStrategy(SingleStrategy(), MakeModel, SmallConfig(model),
                                      With(bf16, {"cut.shards=2"})));
    ExpectPredictedCosts(ranks);
  }
}

// Saved by stages of shards and resumed without, and the other way round.
TEST(FsdpPipeTest, AnyStrategyAndMeshResumesAnyOther) {
  const std::string config = SmallGptConfig() + "[checkpoint]\nevery = 1\n";
  const auto single = RunStrategy(SingleStrategy(), MakeModel, config, {"cut.shards=2"});
  RunStrategy(FsdpPipeStrategy(), MakeModel, config, {"mesh.pp=3", "mesh.dp=2", "train.steps=1"});
  ResumeStrategy(SingleStrategy(), MakeModel, config, {"cut.shards=2", "train.steps=2"});
  const auto last =
      ResumeStrategy(FsdpPipeStrategy(), MakeModel, config, {"mesh.pp=2", "mesh.dp=2"});
  EXPECT_EQ(last[0].losses,
            std::vector<double>(single[0].losses.begin() + 2, single[0].losses.end()));
  EXPECT_EQ(last[0].parameter_hash, single[0].parameter_hash);
}

TEST(FsdpPipeTest, RefusesWhatItDoesNotKnow) {
  const auto message = [](const Assignments& assignments) {
    return std::string(
        FailStrategy(FsdpPipeStrategy(), MakeModel, SmallGptConfig(), assignments).message());
  };
  EXPECT_THAT(message({"mesh.pp=2", "data_parallel.unshard=always"}),
              AllOf(HasSubstr("data_parallel.unshard"), HasSubstr("micro_batch")));
  for (const std::string schedule : {"zb_h1", "zb_v", "dualpipe_v"}) {
    EXPECT_THAT(message({"mesh.pp=2", "data_parallel.unshard=micro_batch", "cut.micro_batches=4",
                         absl::StrCat("pipeline.schedule=", schedule)}),
                AllOf(HasSubstr("data_parallel.unshard is \"micro_batch\""), HasSubstr(schedule),
                      HasSubstr("use \"step\"")));
  }
  EXPECT_THAT(message({"mesh.pp=5"}), HasSubstr("mesh.pp is 5, but the model has 4 blocks"));
}

}  // namespace
}  // namespace lockstep
