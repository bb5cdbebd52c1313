// Schedules from CSV files: what nobody has given a name is run as well.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/fsdp_pipe/fsdp_pipe.h"
#include "strategies/gpipe/gpipe.h"
#include "strategies/schedules/named_schedules.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void ExpectBitsAndTraffic(const std::vector<RankReport>& ranks,
                          const std::vector<RankReport>& single) {
  ExpectSameBits(ranks, single);
  for (const RankReport& rank : ranks) ExpectPredictedTraffic(rank);
}

// The options of a strategy that runs what is in a file.
Assignments FromFile(const std::string& csv) {
  const std::string path = ::testing::TempDir() + "/schedule.csv";
  EXPECT_TRUE(WriteFileAtomically(path, csv).ok());
  return {"pipeline.schedule_file=" + path};
}

std::vector<RankReport> Single(SmallModel model, const Assignments& cut) {
  return RunStrategy(SingleStrategy(), MakeModel, SmallConfig(model), cut);
}

std::vector<RankReport> GPipe(SmallModel model, const std::string& csv,
                              const Assignments& assignments) {
  return RunStrategy(GPipeStrategy(), MakeModel, SmallConfig(model),
                     With(FromFile(csv), assignments));
}

constexpr SmallModel kModels[] = {SmallModel::kGpt, SmallModel::kResNet, SmallModel::kUNet};

TEST(ScheduleFileTest, HasTheBitsOfSingle) {
  const Assignments cut = {"batch.size=8", "cut.micro_batches=3"};
  // Waits are empty cells. The second rank halves its backwards and is late with the weights.
  const char* csv =
      "0F0,0F1,0F2,,0B0,0B1,0B2\n"
      ",1F0,1I0,1F1,1I1,1F2,1I2,1W0,1W1,1W2\n";
  for (const SmallModel model : kModels) {
    const auto single = Single(model, cut);
    for (const char* checkpoint :
         {"recompute.micro_batches=always", "recompute.micro_batches=never"}) {
      ExpectBitsAndTraffic(GPipe(model, csv, With(cut, {"mesh.pp=2", checkpoint})), single);
    }
    // A written schedule is the named one.
    const std::string written = ScheduleToCsv(OneForwardOneBackwardSchedule(3, 3));
    ExpectBitsAndTraffic(GPipe(model, written, With(cut, {"mesh.pp=3"})), single);
  }
}

// A rank has the first stage and the last: batches for both, the tied embeddings beside each other.
constexpr char kVShape[] =
    "0F0,0F1,3F0,3B0,3F1,3B1,0B0,0B1\n"
    "1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1\n";

// The same where weights come last, those of the tied head after those of the embeddings.
constexpr char kVShapeInHalves[] =
    "0F0,0F1,3F0,3I0,3W0,3F1,3I1,0I0,0I1,0W0,0W1,3W1\n"
    "1F0,2F0,1F1,2F1,2I0,1I0,2I1,1I1,1W0,2W0,2W1,1W1\n";

TEST(ScheduleFileTest, AVShapedPlacementHasTheBitsOfSingle) {
  for (const SmallModel model : kModels) {
    const Assignments cut = {"cut.micro_batches=2", "validation.every=2"};
    const auto single = Single(model, cut);
    for (const char* csv : {kVShape, kVShapeInHalves}) {
      for (const char* checkpoint :
           {"recompute.micro_batches=except_last", "recompute.micro_batches=never"}) {
        ExpectBitsAndTraffic(GPipe(model, csv, With(cut, {"mesh.pp=2", checkpoint})), single);
      }
    }
    const Assignments sharded = With(cut, {"cut.shards=2"});
    const auto of_shards = Single(model, sharded);
    for (const char* csv : {kVShape, kVShapeInHalves}) {
      const Assignments mesh = With(cut, {"mesh.pp=2", "mesh.dp=2"});
      ExpectBitsAndTraffic(GPipe(model, csv, mesh), of_shards);
      ExpectBitsAndTraffic(
          RunStrategy(FsdpPipeStrategy(), MakeModel, SmallConfig(model), With(FromFile(csv), mesh)),
          of_shards);
    }
  }
}

TEST(ScheduleFileTest, StagesOfAVCanBeBalanced) {
  const Assignments cut = {"cut.micro_batches=2"};
  const auto single = Single(SmallModel::kUNet, cut);  // of six blocks
  ExpectBitsAndTraffic(
      GPipe(SmallModel::kUNet, kVShape, With(cut, {"mesh.pp=2", "pipeline.balance=[1, 2, 1, 2]"})),
      single);
}

TEST(ScheduleFileTest, RefusesWhatIsBrokenAndNamesTheCell) {
  const auto problem = [](const std::string& csv, const Assignments& more = {}) {
    return std::string(
        FailStrategy(GPipeStrategy(), MakeModel, SmallGptConfig(),
                     With(With({"mesh.pp=2", "cut.micro_batches=1"}, more), FromFile(csv)))
            .message());
  };
  EXPECT_THAT(problem("0F0,0B0\n1F0,1X0\n"),
              AllOf(HasSubstr("pipeline.schedule_file"), HasSubstr("row 2, cell 2: '1X0'")));
  EXPECT_THAT(problem("0F0,0B0\n1B0,1F0\n"),
              HasSubstr("deadlock: rank 1, action 0 (B0) waits for rank 1, action 1 (F0)"));
  EXPECT_THAT(problem("0F0,0F0,0B0\n1F0,1B0\n"),
              HasSubstr("rank 0, action 1 (F0): repeats rank 0, action 0 (F0)"));
  // As torchgpipe does; gradients would add up the other way round.
  EXPECT_THAT(
      problem("0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n", {"cut.micro_batches=2"}),
      HasSubstr("rank 0, action 2 (B1): it is micro-batch 0's turn at stage 0; backwards go "
                "in the order of the micro-batches"));
  EXPECT_THAT(problem("0F0,0B0\n1F0\n"), HasSubstr("rank 1, stage 1, micro-batch 0: no backward"));
  EXPECT_THAT(problem("0F0,1F0,1B0,0B0\n,\n"), HasSubstr("rank 1: has no stage"));
  EXPECT_THAT(problem("0F0,0B0\n"), HasSubstr("has 1 rows, one a rank, but mesh.pp is 2"));
  EXPECT_THAT(problem("0F0,0B0\n1F0,1B0\n", {"cut.micro_batches=2"}),
              HasSubstr("has 1 micro-batches, but a rank runs 2 in one go"));
  EXPECT_THAT(problem("0F0,0B0\n1F0,1B0\n", {"pipeline.schedule=1f1b"}),
              HasSubstr("leave schedule and stages_per_rank out"));
  EXPECT_THAT(std::string(FailStrategy(GPipeStrategy(), MakeModel, SmallGptConfig(),
                                       {"mesh.pp=2", "pipeline.schedule_file=/no/such.csv"})
                              .message()),
              HasSubstr("/no/such.csv"));
}

}  // namespace
}  // namespace lockstep
