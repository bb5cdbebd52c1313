#include "core/report/metrics.h"

#include <signal.h>    // kill, SIGKILL
#include <sys/wait.h>  // waitpid
#include <unistd.h>    // fork, getpid, _exit

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A path that no other test uses.
std::string PathFor(const std::string& name) {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  return testing::TempDir() + "/metrics_test." + test->name() + "." + name;
}

std::string Contents(const std::string& path) { return ReadFile(path).value_or("(unreadable)"); }

void Write(const std::string& path, const std::string& contents) {
  ASSERT_EQ(WriteFileAtomically(path, contents), absl::OkStatus());
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(LossesCsvTest, WritesNineSignificantDigits) {
  const std::string path = PathFor("losses.csv");
  Write(path, "old");
  absl::StatusOr<LossesCsv> losses = LossesCsv::Create(path);
  ASSERT_TRUE(losses.ok()) << losses.status();
  EXPECT_EQ(Contents(path), "step,loss\n");
  const float third = 1.0f / 3;
  ASSERT_EQ(losses->Append(1, third), absl::OkStatus());
  EXPECT_EQ(Contents(path), "step,loss\n1,0.333333343\n") << "a row must be there at once";
  ASSERT_EQ(losses->Append(2, 4.0), absl::OkStatus());
  ASSERT_EQ(losses->Append(3, 1.17549435e-38f), absl::OkStatus());
  ASSERT_EQ(losses->Append(4, kInfinity), absl::OkStatus());
  ASSERT_EQ(losses->Append(5, kNan), absl::OkStatus());
  EXPECT_EQ(Contents(path), "step,loss\n1,0.333333343\n2,4\n3,1.17549435e-38\n4,inf\n5,nan\n");

  const absl::StatusOr<std::vector<LossPoint>> curve = ReadLossCurve(path);
  ASSERT_TRUE(curve.ok()) << curve.status();
  ASSERT_EQ(curve->size(), 5u);
  EXPECT_EQ(static_cast<float>((*curve)[0].loss), third);
  EXPECT_EQ((*curve)[1], (LossPoint{.step = 2, .loss = 4}));
  EXPECT_EQ(static_cast<float>((*curve)[2].loss), 1.17549435e-38f);
  EXPECT_EQ((*curve)[3].loss, kInfinity);
  EXPECT_TRUE(std::isnan((*curve)[4].loss));
}

TEST(LossesCsvTest, RowsSurviveAKill) {
  const std::string path = PathFor("losses.csv");
  const pid_t child = fork();
  if (child == 0) {
    absl::StatusOr<LossesCsv> losses = LossesCsv::Create(path);
    const bool good = losses.ok() && losses->Append(1, 0.5).ok() && losses->Append(2, 0.25).ok();
    if (good) kill(getpid(), SIGKILL);
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_EQ(Contents(path), "step,loss\n1,0.5\n2,0.25\n");
}

TEST(LossesCsvTest, ResumeDropsWhatWillComeAgain) {
  const std::string path = PathFor("losses.csv");
  for (const char* torn : {"", "4", "4,0.06", "4,0.0625"}) {
    Write(path, std::string("step,loss\n1,0.5\n2,0.25\n3,0.125\n") + torn);
    absl::StatusOr<LossesCsv> losses = LossesCsv::Resume(path, 3);
    ASSERT_TRUE(losses.ok()) << losses.status();
    EXPECT_EQ(Contents(path), "step,loss\n1,0.5\n2,0.25\n");
    ASSERT_EQ(losses->Append(3, 7), absl::OkStatus());
    EXPECT_EQ(Contents(path), "step,loss\n1,0.5\n2,0.25\n3,7\n");
  }
  // Nothing is beyond the step: only the torn row goes.
  Write(path, "step,loss\n1,0.5\n2,0.2");
  ASSERT_TRUE(LossesCsv::Resume(path, 9).ok());
  EXPECT_EQ(Contents(path), "step,loss\n1,0.5\n");
}

TEST(LossesCsvTest, ResumeMakesWhatIsMissing) {
  const std::string path = PathFor("losses.csv");
  for (const char* contents : {"(none)", "", "step,lo"}) {
    if (std::string(contents) != "(none)") Write(path, contents);
    ASSERT_TRUE(LossesCsv::Resume(path, 3).ok());
    EXPECT_EQ(Contents(path), "step,loss\n");
  }
}

TEST(LossesCsvTest, ResumeLeavesForeignFilesAlone) {
  const std::string path = PathFor("losses.csv");
  Write(path, "name,value\n1,2\n");
  EXPECT_THAT(Message(LossesCsv::Resume(path, 1).status()),
              HasSubstr("losses.csv:1: expected the line \"step,loss\""));
  EXPECT_EQ(Contents(path), "name,value\n1,2\n");
  Write(path, "step,loss\n1,0.5\ngarbage\n2,1\n");
  EXPECT_THAT(Message(LossesCsv::Resume(path, 2).status()),
              HasSubstr("losses.csv:3: expected a step and its loss, such as \"12,3.25\", found "
                        "\"garbage\""));
  EXPECT_EQ(Contents(path), "step,loss\n1,0.5\ngarbage\n2,1\n");
}

TEST(LossesCsvTest, UnwritablePlacesAreNamed) {
  const std::string path = PathFor("missing") + "/losses.csv";
  EXPECT_EQ(Message(LossesCsv::Create(path).status()),
            "cannot write \"" + path + "\": No such file or directory");
  EXPECT_EQ(Message(LossesCsv::Resume(path, 1).status()),
            "cannot write \"" + path + "\": No such file or directory");
}

TEST(LossCurveTest, RefusesWhatIsNoCurve) {
  const std::string path = PathFor("losses.csv");
  const auto message = [&](const std::string& contents) {
    Write(path, contents);
    const std::string text = Message(ReadLossCurve(path).status());
    return text.substr(text.rfind("losses.csv") + 10);
  };
  EXPECT_EQ(message(""), ":1: expected the line \"step,loss\", found \"\"");
  EXPECT_EQ(message("1,2\n"), ":1: expected the line \"step,loss\", found \"1,2\"");
  EXPECT_THAT(message("step,loss\n1,0.5\n2,0.2"), HasSubstr(":3: the last row has no line end"));
  EXPECT_THAT(message("step,loss\n1,0.5\n2\n"), HasSubstr(":3: expected a step and its loss"));
  EXPECT_THAT(message("step,loss\n1.5,0.5\n"), HasSubstr(":2: expected a step and its loss"));
  EXPECT_THAT(message("step,loss\n1,0.5,3\n"), HasSubstr(":2: expected a step and its loss"));
  EXPECT_THAT(message("step,loss\n1,\n"), HasSubstr(":2: expected a step and its loss"));
  EXPECT_THAT(message("step,loss\n\n"), HasSubstr(":2: expected a step and its loss"));
  EXPECT_EQ(message("step,loss\n2,1\n2,1\n"), ":3: step 2 comes after step 2");
  Write(path, "step,loss\n");
  EXPECT_THAT(ReadLossCurve(path).value(), IsEmpty());
  EXPECT_THAT(Message(ReadLossCurve(path + ".missing").status()), HasSubstr("cannot read"));
}

TEST(MetricsRowTest, WritesJsonInTheOrderOfSetting) {
  MetricsRow row;
  row.Set("loss", 0.1)
      .Set("count", 3)
      .Set("bytes", int64_t{1} << 60)
      .Set("unsigned", std::numeric_limits<uint64_t>::max())
      .Set("single", 0.5f)
      .Set("good", true)
      .Set("name", "quote \" newline \n end")
      .Set("overflow", kInfinity)
      .Set("undefined", kNan)
      .Set("memory", MetricsRow().Set("parameters", 12))
      .Set("ranks", std::vector<MetricsRow>{MetricsRow().Set("rank", 0), MetricsRow()})
      .Set("times", std::vector<double>{0.5, 2})
      .Set("names", std::vector<std::string>{"a", "b"})
      .Set("count", 4);
  EXPECT_EQ(row.ToJson(),
            R"({"loss":0.1,"count":4,"bytes":1152921504606846976,"unsigned":18446744073709551615,)"
            R"("single":0.5,"good":true,"name":"quote \" newline \n end","overflow":null,)"
            R"("undefined":null,"memory":{"parameters":12},"ranks":[{"rank":0},{}],)"
            R"("times":[0.5,2.0],"names":["a","b"]})");
}

TEST(MetricsRowTest, DoublesReadBackToTheSameBits) {
  for (const double value : {0.1, 1.0 / 3, 5e-324, 1.7976931348623157e308, -0.0, 123456789.123}) {
    const auto json = nlohmann::json::parse(MetricsRow().Set("x", value).ToJson());
    EXPECT_EQ(json.at("x").get<double>(), value);
  }
}

TEST(MetricsRowTest, TextThatIsNoUtf8StillGivesJson) {
  const auto json = nlohmann::json::parse(MetricsRow()
                                              .Set("path",
                                                   "a\xff"
                                                   "b")
                                              .ToJson());
  EXPECT_EQ(json.at("path").get<std::string>(),
            "a\xEF\xBF\xBD"
            "b");
}

TEST(MetricsJsonlTest, AppendsAndResumes) {
  const std::string path = PathFor("metrics.jsonl");
  {
    absl::StatusOr<MetricsJsonl> metrics = MetricsJsonl::Create(path);
    ASSERT_TRUE(metrics.ok()) << metrics.status();
    ASSERT_EQ(metrics->Append(1, MetricsRow().Set("loss", 0.5)), absl::OkStatus());
    ASSERT_EQ(metrics->Append(2, MetricsRow().Set("loss", 0.25)), absl::OkStatus());
    ASSERT_EQ(metrics->Append(2, MetricsRow().Set("validation_loss", 0.75)), absl::OkStatus());
    ASSERT_EQ(metrics->Append(3, MetricsRow()), absl::OkStatus());
  }
  const std::string first_two =
      "{\"step\":1,\"loss\":0.5}\n{\"step\":2,\"loss\":0.25}\n{\"step\":2,\"validation_loss\":"
      "0.75}\n";
  EXPECT_EQ(Contents(path), first_two + "{\"step\":3}\n");
  absl::StatusOr<MetricsJsonl> metrics = MetricsJsonl::Resume(path, 3);
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_EQ(Contents(path), first_two);
  ASSERT_EQ(metrics->Append(3, MetricsRow().Set("loss", 1.5)), absl::OkStatus());
  EXPECT_EQ(Contents(path), first_two + "{\"step\":3,\"loss\":1.5}\n");
  ASSERT_TRUE(MetricsJsonl::Resume(path, 1).ok());
  EXPECT_EQ(Contents(path), "");
}

TEST(MetricsJsonlTest, ResumeRefusesOtherFiles) {
  const std::string path = PathFor("metrics.jsonl");
  for (const char* row : {"step,loss", "[1]", "{\"step\":1.5}", "{}"}) {
    Write(path, std::string("{\"step\":1}\n") + row + "\n");
    EXPECT_THAT(Message(MetricsJsonl::Resume(path, 9).status()),
                HasSubstr("metrics.jsonl:2: expected a JSON object with a whole number \"step\""));
  }
}

TEST(SummaryTest, IsIndentedJson) {
  const std::string path = PathFor("summary.json");
  ASSERT_EQ(WriteSummary(path, MetricsRow().Set("z", 0.1).Set("a", MetricsRow().Set("n", 1))),
            absl::OkStatus());
  EXPECT_EQ(Contents(path), "{\n  \"z\": 0.1,\n  \"a\": {\n    \"n\": 1\n  }\n}\n");
}

}  // namespace
}  // namespace lockstep
