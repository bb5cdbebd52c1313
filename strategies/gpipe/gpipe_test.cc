#include "strategies/gpipe/gpipe.h"

#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/ddp/ddp.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Assignments Cut(int micro_batches) {
  return {absl::StrCat("cut.micro_batches=", micro_batches),
          absl::StrCat("batch.size=", micro_batches == 5 ? 10 : 12)};
}

const Assignments kValidated = {"validation.every=2"};

class GPipeEqualsSingleTest : public ::testing::TestWithParam<std::tuple<SmallModel, int>> {};

// Every schedule and mode, with fewer micro-batches than stages too, against one run of single.
TEST_P(GPipeEqualsSingleTest, ToTheBitAtThePredictedCost) {
  const auto [model, micro_batches] = GetParam();
  const std::string config = SmallConfig(model);
  const auto single = RunStrategy(SingleStrategy(), MakeModel, config, Cut(micro_batches));
  EXPECT_NE(single[0].losses[0], single[0].losses[3]);
  for (const int stages : {2, 3, 4}) {
    for (const char* schedule : {"gpipe", "1f1b", "zb_h1", "layerwise"}) {
      for (const char* checkpoint : {"always", "except_last", "never"}) {
        const Assignments options = {absl::StrCat("mesh.pp=", stages),
                                     absl::StrCat("pipeline.schedule=", schedule),
                                     absl::StrCat("recompute.micro_batches=", checkpoint)};
        SCOPED_TRACE(absl::StrJoin(options, " "));
        const auto gpipe =
            RunStrategy(GPipeStrategy(), MakeModel, config, With(Cut(micro_batches), options));
        ASSERT_EQ(gpipe.size(), static_cast<size_t>(stages));
        ExpectSameBits(gpipe, single);
        for (const RankReport& report : gpipe) ExpectPredictedTraffic(report);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cuts, GPipeEqualsSingleTest,
                         ::testing::Combine(::testing::Values(SmallModel::kGpt, SmallModel::kResNet,
                                                              SmallModel::kUNet),
                                            ::testing::Values(1, 4, 5)),
                         [](const auto& parameters) {
                           return absl::StrCat(Name(std::get<0>(parameters.param)), "MicroBatches",
                                               std::get<1>(parameters.param));
                         });

// A pipeline of one stage is its data-parallel strategy: bits, bytes and memory.
TEST(GPipeTest, OneStageIsDdp) {
  for (const std::string& config : {SmallGptConfig(), SmallResNetConfig()}) {
    const Assignments mesh = {"mesh.dp=2", "cut.micro_batches=3"};
    const auto ddp = RunStrategy(DdpStrategy(), MakeModel, config, mesh);
    const auto gpipe =
        RunStrategy(GPipeStrategy(), MakeModel, config,
                    With(mesh, {"pipeline.schedule=layerwise", "recompute.micro_batches=never"}));
    ExpectSameBits(gpipe, ddp);
    for (size_t rank = 0; rank < ddp.size(); ++rank) {
      EXPECT_EQ(gpipe[rank].memory.peak_total(), ddp[rank].memory.peak_total());
      ASSERT_EQ(gpipe[rank].traffic.by_kind.size(), ddp[rank].traffic.by_kind.size());
      for (const auto& predicted : ddp[rank].prediction.traffic) {
        EXPECT_EQ(gpipe[rank].traffic.Of(predicted.operation, predicted.label).wire_bytes,
                  ddp[rank].traffic.Of(predicted.operation, predicted.label).wire_bytes);
      }
    }
  }
}

TEST(GPipeTest, ReplicasHaveTheBitsOfSingle) {
  for (const std::string& config : {SmallGptConfig(), SmallResNetConfig()}) {
    const auto single = RunStrategy(SingleStrategy(), MakeModel, config, {"cut.shards=4"});
    const auto gpipe = RunStrategy(GPipeStrategy(), MakeModel, config,
                                   {"mesh.pp=2", "mesh.replicas=2", "mesh.dp=2"});
    ExpectSameBits(gpipe, single);
    for (const RankReport& report : gpipe) ExpectPredictedTraffic(report);
  }
}

TEST(GPipeTest, InterleavedStagesHaveTheBitsOfSingle) {
  for (const std::string& config : {SmallGptConfig(), SmallResNetConfig()}) {
    const auto single = RunStrategy(SingleStrategy(), MakeModel, config, Cut(4));
    const Assignments interleaved = {"pipeline.schedule=interleaved_1f1b",
                                     "pipeline.stages_per_rank=2"};
    for (const char* ranks : {"mesh.pp=1", "mesh.pp=2"}) {
      const auto gpipe =
          RunStrategy(GPipeStrategy(), MakeModel, config, With(With(Cut(4), interleaved), {ranks}));
      ExpectSameBits(gpipe, single);
      for (const RankReport& report : gpipe) ExpectPredictedTraffic(report);
    }
  }
}

// The first rank has the first stage and the last, and with them a GPT's tied embeddings and head;
// the last rank has two stages that are neighbours.
TEST(GPipeTest, VShapedPlacementsHaveTheBitsOfSingleAtThePredictedCost) {
  for (const SmallModel model : {SmallModel::kGpt, SmallModel::kResNet, SmallModel::kUNet}) {
    const std::string config = SmallConfig(model);
    const auto single = RunStrategy(SingleStrategy(), MakeModel, config, Cut(5));
    for (const char* schedule : {"zb_v", "dualpipe_v"}) {
      for (const char* checkpoint : {"always", "except_last", "never"}) {
        for (const char* ranks : {"mesh.pp=1", "mesh.pp=2"}) {
          const Assignments options = {ranks, absl::StrCat("pipeline.schedule=", schedule),
                                       absl::StrCat("recompute.micro_batches=", checkpoint)};
          SCOPED_TRACE(absl::StrJoin(options, " "));
          const auto gpipe = RunStrategy(GPipeStrategy(), MakeModel, config, With(Cut(5), options));
          ExpectSameBits(gpipe, single);
          for (const RankReport& report : gpipe) ExpectPredictedTraffic(report);
        }
      }
    }
    // Fewer micro-batches than fill the V.
    const auto two = RunStrategy(SingleStrategy(), MakeModel, config, Cut(2));
    ExpectSameBits(RunStrategy(GPipeStrategy(), MakeModel, config,
                               With(Cut(2), {"mesh.pp=2", "pipeline.schedule=zb_v"})),
                   two);
  }
}

// Six blocks, three ranks: the middle rank sends to both sides on both legs of the V.
TEST(GPipeTest, VShapedPlacementsOnThreeRanks) {
  const std::string config = SmallConfig(SmallModel::kUNet);
  const auto single = RunStrategy(SingleStrategy(), MakeModel, config, With(Cut(6), kValidated));
  for (const char* schedule : {"pipeline.schedule=zb_v", "pipeline.schedule=dualpipe_v"}) {
    SCOPED_TRACE(schedule);
    const auto gpipe = RunStrategy(GPipeStrategy(), MakeModel, config,
                                   With(With(Cut(6), kValidated), {"mesh.pp=3", schedule}));
    ExpectSameBits(gpipe, single);
    for (const RankReport& report : gpipe) ExpectPredictedTraffic(report);
  }
}

TEST(GPipeTest, WithShardsToo) {
  for (const std::string& config : {SmallGptConfig(), SmallResNetConfig()}) {
    for (const char* schedule : {"gpipe", "1f1b", "zb_h1", "zb_v", "dualpipe_v"}) {
      // dualpipe_v needs two a rank.
      const char* cut =
          schedule == std::string("dualpipe_v") ? "cut.micro_batches=4" : "cut.micro_batches=3";
      const auto single = RunStrategy(SingleStrategy(), MakeModel, config, {"cut.shards=2", cut});
      const auto gpipe = RunStrategy(
          GPipeStrategy(), MakeModel, config,
          {"mesh.pp=2", "mesh.dp=2", cut, absl::StrCat("pipeline.schedule=", schedule),
           "data_parallel.first_bucket_bytes=4096", "data_parallel.bucket_bytes=100000"});
      ExpectSameBits(gpipe, single);
      for (const RankReport& report : gpipe) ExpectPredictedTraffic(report);
    }
  }
}

TEST(GPipeTest, RefusesWhatCannotBeRun) {
  const auto message = [](const Assignments& assignments) {
    return std::string(
        FailStrategy(GPipeStrategy(), MakeModel, SmallGptConfig(), assignments).message());
  };
  EXPECT_THAT(
      message({"mesh.pp=2", "pipeline.schedule=fill_drain"}),
      AllOf(HasSubstr("pipeline.schedule"), HasSubstr("there is no schedule 'fill_drain'")));
  EXPECT_THAT(message({"mesh.pp=2", "recompute.micro_batches=sometimes"}),
              HasSubstr("recompute.micro_batches"));
  EXPECT_THAT(message({"mesh.pp=2", "pipeline.balance=[1, 2]"}),
              AllOf(HasSubstr("pipeline.balance = [1, 2]"), HasSubstr("4 blocks")));
  EXPECT_THAT(message({"mesh.pp=5"}), HasSubstr("4 blocks"));
  EXPECT_THAT(message({"mesh.pp=2", "pipeline.stages_per_rank=2"}),
              HasSubstr("interleaved_1f1b takes several"));
  EXPECT_THAT(message({"mesh.pp=2", "pipeline.schedule=interleaved_1f1b", "cut.micro_batches=3"}),
              HasSubstr("3 do not divide by 2"));
  EXPECT_THAT(message({"mesh.pp=2", "pipeline.schedule=dualpipe_v", "cut.micro_batches=3"}),
              AllOf(HasSubstr("pipeline.schedule"), HasSubstr("4 for 2, but there are 3")));
  EXPECT_THAT(message({"mesh.pp=2", "pipeline.schedule=zb_v", "pipeline.stages_per_rank=3"}),
              HasSubstr("zb_v has 2 stages a rank, not 3"));
  EXPECT_THAT(message({"mesh.pp=3", "pipeline.schedule=zb_v", "cut.micro_batches=2"}),
              HasSubstr("pipeline has 6 stages on 3 ranks, but the model has 4 blocks"));
}

}  // namespace
}  // namespace lockstep
