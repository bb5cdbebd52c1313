#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/draw/testing/markup_check.h"
#include "tools/timeline/picture.h"
#include "tools/timeline/step_trace.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::string Event(int rank, const std::string& name, int begin, int duration, int micro_batch) {
  return absl::StrCat(
      R"({"ph": "X", "pid": )", rank, R"(, "tid": 0, "name": ")", name, R"(", "ts": )", begin,
      R"(, "dur": )", duration, R"(, "args": )",
      micro_batch < 0 ? "{}" : absl::StrCat(R"({"micro_batch": )", micro_batch, "}"), "}");
}

std::string Memory(int rank, int at, int bytes) {
  return absl::StrCat(R"({"ph": "C", "name": "memory", "pid": )", rank, R"(, "ts": )", at,
                      R"(, "args": {"gradients": )", bytes, R"(, "parameters": 7}})");
}

// Two ranks: step 4, and step 5 from 1000 us to 2000 us.
std::string TwoSteps() {
  return absl::StrCat(
      R"({"traceEvents": [{"ph": "M", "name": "process_name", "pid": 0, "args": {}})", ",",
      Event(0, "step 4", 0, 900, -1), ",", Event(1, "step 4", 0, 900, -1), ",",
      Event(0, "forward", 0, 100, 0), ",", Event(0, "step 5", 1000, 900, -1), ",",
      Event(1, "step 5", 1010, 990, -1), ",", Event(0, "backward", 1500, 300, 3), ",",
      Event(0, "forward", 1000, 250, 3), ",", Event(1, "bubble", 1010, 240, -1), ",",
      Event(1, "forward", 1250, 100, 3), ",",
      R"({"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": "communication"}},)",
      R"({"ph": "X", "name": "all_reduce loss", "pid": 1, "tid": 2, "ts": 1400, "dur": 10,)",
      R"( "args": {"bytes": 8}},)", Memory(1, 500, 1), ",", Memory(1, 1400, 2), ",",
      Memory(1, 1500, 3), "]}");
}

TEST(StepTraceTest, HasThePhasesOfOneStepInOrder) {
  const auto trace = ReadStepTrace(TwoSteps(), "trace.json");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->step, 5);
  EXPECT_DOUBLE_EQ(trace->seconds, 1e-3);
  ASSERT_EQ(trace->ranks.size(), 2u);
  const std::vector<StepTrace::Phase>& phases = trace->ranks[0].phases;
  ASSERT_EQ(phases.size(), 2u);
  EXPECT_EQ(phases[0].work, &kForwardWork);
  EXPECT_EQ(phases[1].work, &kBackwardWork);
  EXPECT_EQ(phases[1].micro_batch, 3);
  EXPECT_DOUBLE_EQ(phases[1].begin, 5e-4);
  EXPECT_DOUBLE_EQ(phases[1].end, 8e-4);
  ASSERT_EQ(trace->ranks[1].phases.size(), 2u);
  EXPECT_EQ(trace->ranks[1].phases[0].work, &kBubbleWork);
}

TEST(StepTraceTest, HasWhatWasSentAndLiveMeanwhile) {
  const auto trace = ReadStepTrace(TwoSteps(), "trace.json");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_TRUE(trace->ranks[0].calls.empty());
  const StepTrace::Rank& rank = trace->ranks[1];
  ASSERT_EQ(rank.calls.size(), 1u);
  EXPECT_EQ(rank.calls[0].name, "all_reduce loss");
  EXPECT_EQ(rank.calls[0].bytes, 8);
  EXPECT_DOUBLE_EQ(rank.calls[0].begin, 4e-4);
  EXPECT_DOUBLE_EQ(rank.calls[0].end, 4.1e-4);
  ASSERT_EQ(rank.memory.size(), 2u);
  EXPECT_DOUBLE_EQ(rank.memory[0].seconds, 4e-4);
  EXPECT_EQ(rank.memory[0].bytes.at("gradients"), 2);
  EXPECT_EQ(rank.memory[1].bytes.at("gradients"), 3);
}

TEST(StepTraceTest, AnyStepThatIsThere) {
  const auto trace = ReadStepTrace(TwoSteps(), "trace.json", 4);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->ranks[0].phases.size(), 1u);
  EXPECT_TRUE(trace->ranks[1].phases.empty());
}

TEST(StepTraceTest, RefusesWhatIsNoTrace) {
  const auto message = [](const std::string& json, std::optional<int64_t> step = std::nullopt) {
    return std::string(ReadStepTrace(json, "a.json", step).status().message());
  };
  EXPECT_THAT(message("{"), HasSubstr("a.json is no trace of a run"));
  EXPECT_THAT(message("[]"), HasSubstr("a.json is no trace of a run"));
  EXPECT_THAT(message(R"({"traceEvents": []})"), HasSubstr("a.json has no step"));
  EXPECT_THAT(message(TwoSteps(), 6), HasSubstr("does not have step 6, but 4, 5"));
}

// Each would crash, hang or draw nothing.
TEST(StepTraceTest, RefusesRanksAndTimesThatNoRunHas) {
  const auto problem = [](const std::string& before, const std::string& after) {
    std::string json = TwoSteps();
    json.replace(json.rfind(before), before.size(), after);
    return std::string(ReadStepTrace(json, "trace.json", 5).status().message());
  };
  const std::string last = R"("pid": 1, "tid": 0, "name": "step 5")";
  for (const char* pid : {"-1", "2147483647", "1e300", "\"a\""}) {
    EXPECT_THAT(problem(last, absl::StrCat(R"("pid": )", pid, R"(, "tid": 0, "name": "step 5")")),
                HasSubstr("which is no rank"));
  }
  for (const char* time : {"1e308", "-1", "0"}) {
    EXPECT_THAT(problem(R"("dur": 990)", absl::StrCat(R"("dur": )", time)),
                HasSubstr("trace.json is no trace of a run: the event \"step 5\" has dur"));
  }
  EXPECT_THAT(problem(R"("ts": 1010, "dur": 990)", R"("ts": 1e308, "dur": 990)"),
              HasSubstr("has ts 1e+308, which is no time of a run"));
}

TEST(TimelinePictureTest, DrawsEachPhaseToScale) {
  const auto trace = ReadStepTrace(TwoSteps(), "trace.json");
  ASSERT_TRUE(trace.ok());
  const std::string svg = TimelinePicture(*trace, "Ranks & steps");
  EXPECT_EQ(MarkupFault(svg), "");
  EXPECT_THAT(svg, HasSubstr("Ranks &amp; steps"));
  EXPECT_THAT(svg,
              HasSubstr("step 5 took 1.0 ms; waiting for other stages: rank 0 0 %, rank 1 24 %"));
  EXPECT_THAT(svg, HasSubstr("backward of micro-batch 3, 0.50 to 0.80 ms"));
  // 900 pixels for 1 ms, behind 92 for margin and label: the backward is 270 wide, from 542 on.
  EXPECT_THAT(svg, HasSubstr("x=\"542.0\""));
  EXPECT_THAT(svg, HasSubstr("width=\"270.0\""));
}

}  // namespace
}  // namespace lockstep
