#include "core/report/banner.h"

#include <memory>
#include <string>

#include "core/config/config.h"
#include "core/data/markov.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

RunDescription SomeRun() {
  RunDescription run;
  run.config = Config::FromString("[model]\nkind = \"transformer\"\n", "a.toml").value();
  run.workload = "gpt";
  run.strategy_name = "fsdp";
  run.settings.steps = 500;
  run.settings.batch.size = 64;
  run.settings.threads = 1;
  run.settings.mesh.dp = 2;
  run.dataset = Markov::Create({.context = 32}).value();
  run.parameters = run.trained_parameters = 809'234;
  run.out = "runs/gpt/fsdp";
  return run;
}

TEST(BannerTest, SaysWhatIsTrainedHowAndWhere) {
  EXPECT_EQ(Banner(SomeRun(), 0, "", {}),
            "gpt under fsdp, mesh pp=1,dp=2,tp=1: 2 ranks on the CPU, 1 thread each\n"
            "  model  transformer of 809.2K parameters\n"
            "  data   " +
                SomeRun().dataset->Describe() +
                "\n"
                "  steps  500 of 64 samples (2.0K tokens)\n"
                "  out    runs/gpt/fsdp");
}

TEST(BannerTest, AdaptersAndOneRankReadWell) {
  RunDescription run = SomeRun();
  run.settings.mesh.dp = 1;
  run.settings.threads = 2;
  run.trained_parameters = 1000;
  EXPECT_THAT(Banner(run, 0, "", {}), HasSubstr("gpt under fsdp: 1 rank on the CPU, 2 threads\n"));
  EXPECT_THAT(Banner(run, 0, "", {}), HasSubstr("809.2K parameters, of which 1.0K are trained"));
}

TEST(BannerTest, ARunThatGoesOnSaysFromWhereAndWhatHasChanged) {
  const std::string text =
      Banner(SomeRun(), 300, "out/checkpoints/step-00000300",
             {{.key = "schedule.learning_rate", .ours = "0.05", .theirs = "0.1"},
              {.key = "train.clip_norm", .ours = "1.0", .theirs = ""}});
  EXPECT_THAT(text, HasSubstr("; goes on with step 301, from out/checkpoints/step-00000300\n"));
  EXPECT_THAT(text, EndsWith("changed since: schedule.learning_rate 0.1 -> 0.05, "
                             "train.clip_norm not set -> 1.0"));
  EXPECT_THAT(Banner(SomeRun(), 300, "", {}), Not(HasSubstr("changed")));
}

}  // namespace
}  // namespace lockstep
