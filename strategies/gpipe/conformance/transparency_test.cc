// Conformance with torchgpipe, "transparency": gradients are those of the model without a pipeline.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "strategies/schedules/named_schedules.h"
#include "strategies/stages/testing/probe.h"
#include "strategies/stages/testing/tested_pipeline.h"

namespace lockstep {
namespace {

TEST(TransparencyTest, SimpleLinears) {
  const auto make_model = [] { return MakeProbes({{}, {}, {}, {}}); };
  for (const std::vector<int64_t>& balance :
       {std::vector<int64_t>{4}, {2, 2}, {1, 3}, {1, 2, 1}, {1, 1, 1, 1}}) {
    const auto stages = static_cast<int>(balance.size());
    for (const std::string& name : ScheduleNames()) {
      const int of_rank = name == "interleaved_1f1b" ? 2 : DefaultStagesPerRank(name);
      if (stages % of_rank != 0) continue;
      for (const Checkpointing checkpointing :
           {Checkpointing::kAlways, Checkpointing::kExceptLast, Checkpointing::kNever}) {
        SCOPED_TRACE(absl::StrCat(name, " of ", stages, " stages"));
        const PipelineUnderTest pipeline = {
            .make_model = make_model,
            .schedule = MakeSchedule(name, stages / of_rank, of_rank, 4).value(),
            .balance = balance,
            .checkpointing = checkpointing,
            .samples = 7};  // 2, 2, 2 and 1
        const auto outcome = RunPipeline(pipeline);
        ASSERT_TRUE(outcome.ok()) << outcome.status();
        EXPECT_EQ(outcome->gradients.size(), 8u);
        EXPECT_EQ(*outcome, WithoutPipeline(pipeline));
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
