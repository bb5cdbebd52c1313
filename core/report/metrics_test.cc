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

using ::testing::ElementsAre;
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

absl::StatusOr<RowFile> OpenLosses(const std::string& path, int64_t first_step) {
  return RowFile::Open(path, kLossesCsv, first_step);
}

absl::Status AppendLoss(absl::StatusOr<RowFile>& losses, int64_t step, double loss) {
  return losses->Append(LossPoint{.step = step, .loss = loss}.ToRow());
}

TEST(RowFileTest, AFileThatWasRemovedIsNamedWhenItIsSynced) {
  const std::string path = PathFor("losses.csv");
  absl::StatusOr<RowFile> losses = OpenLosses(path, 0);
  ASSERT_TRUE(AppendLoss(losses, 0, 1.5).ok());
  EXPECT_TRUE(losses->Sync().ok());
  ASSERT_EQ(unlink(path.c_str()), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(losses->Sync()));
  ASSERT_TRUE(WriteFileAtomically(path, "another").ok());
  EXPECT_THAT(std::string(losses->Sync().message()), HasSubstr("was removed or replaced"));
}

TEST(LossesCsvTest, WritesNineSignificantDigits) {
  const std::string path = PathFor("losses.csv");
  Write(path, "old");
  absl::StatusOr<RowFile> losses = OpenLosses(path, 0);
  ASSERT_TRUE(losses.ok()) << losses.status();
  EXPECT_EQ(Contents(path), "step,loss\n");
  const float third = 1.0f / 3;
  ASSERT_EQ(AppendLoss(losses, 1, third), absl::OkStatus());
  EXPECT_EQ(Contents(path), "step,loss\n1,0.333333343\n") << "a row must be there at once";
  ASSERT_EQ(AppendLoss(losses, 2, 4.0), absl::OkStatus());
  ASSERT_EQ(AppendLoss(losses, 3, 1.17549435e-38f), absl::OkStatus());
  ASSERT_EQ(AppendLoss(losses, 4, kInfinity), absl::OkStatus());
  ASSERT_EQ(AppendLoss(losses, 5, kNan), absl::OkStatus());
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
    absl::StatusOr<RowFile> losses = OpenLosses(path, 0);
    const bool good =
        losses.ok() && AppendLoss(losses, 1, 0.5).ok() && AppendLoss(losses, 2, 0.25).ok();
    if (good) kill(getpid(), SIGKILL);
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_EQ(Contents(path), "step,loss\n1,0.5\n2,0.25\n");
}

TEST(LossesCsvTest, ResumeCutsWhatWillComeAgainAndTellsIt) {
  const std::string path = PathFor("losses.csv");
  for (const char* torn : {"", "4", "4,0.06", "4,0.0625"}) {
    Write(path, std::string("step,loss\n1,0.5\n2,0.25\n3,0.125\n") + torn);
    EXPECT_EQ(RowFile::RowsToCut(path, kLossesCsv, 3).value(), "step,loss\n3,0.125\n");
    absl::StatusOr<RowFile> losses = OpenLosses(path, 3);
    ASSERT_TRUE(losses.ok()) << losses.status();
    EXPECT_EQ(Contents(path), "step,loss\n1,0.5\n2,0.25\n");
    ASSERT_EQ(AppendLoss(losses, 3, 7), absl::OkStatus());
    EXPECT_EQ(Contents(path), "step,loss\n1,0.5\n2,0.25\n3,7\n");
  }
  // Nothing is beyond the step: only the torn row goes.
  Write(path, "step,loss\n1,0.5\n2,0.2");
  EXPECT_EQ(RowFile::RowsToCut(path, kLossesCsv, 9).value(), "");
  ASSERT_TRUE(OpenLosses(path, 9).ok());
  EXPECT_EQ(Contents(path), "step,loss\n1,0.5\n");
}

TEST(LossesCsvTest, ResumeMakesWhatIsMissing) {
  const std::string path = PathFor("losses.csv");
  for (const char* contents : {"(none)", "", "step,lo"}) {
    if (std::string(contents) != "(none)") Write(path, contents);
    EXPECT_EQ(RowFile::RowsToCut(path, kLossesCsv, 3).value(), "");
    ASSERT_TRUE(OpenLosses(path, 3).ok());
    EXPECT_EQ(Contents(path), "step,loss\n");
  }
}

TEST(LossesCsvTest, ResumeLeavesForeignFilesAlone) {
  const std::string path = PathFor("losses.csv");
  Write(path, "name,value\n1,2\n");
  EXPECT_THAT(Message(OpenLosses(path, 1).status()),
              HasSubstr("losses.csv:1: expected the line \"step,loss\""));
  EXPECT_EQ(Contents(path), "name,value\n1,2\n");
  Write(path, "step,loss\n1,0.5\ngarbage\n2,1\n");
  EXPECT_THAT(Message(OpenLosses(path, 2).status()),
              HasSubstr("losses.csv:3: expected a step and its loss, such as \"12,3.25\", found "
                        "\"garbage\""));
  EXPECT_EQ(Contents(path), "step,loss\n1,0.5\ngarbage\n2,1\n");
}

TEST(LossesCsvTest, UnwritablePlacesAreNamed) {
  const std::string path = PathFor("missing") + "/losses.csv";
  EXPECT_EQ(Message(OpenLosses(path, 0).status()),
            "cannot write \"" + path + "\": No such file or directory");
  EXPECT_EQ(Message(OpenLosses(path, 1).status()),
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

TEST(MetricsJsonlTest, AppendsAndResumes) {
  const std::string path = PathFor("metrics.jsonl");
  {
    absl::StatusOr<RowFile> metrics = RowFile::Open(path, kMetricsJsonl, 0);
    ASSERT_TRUE(metrics.ok()) << metrics.status();
    ASSERT_EQ(metrics->Append(R"({"step":1,"loss":0.5})"), absl::OkStatus());
    ASSERT_EQ(metrics->Append(R"({"step":2,"loss":0.25})"), absl::OkStatus());
    ASSERT_EQ(metrics->Append(R"({"step":2,"validation_loss":0.75})"), absl::OkStatus());
    ASSERT_EQ(metrics->Append(R"({"step":3})"), absl::OkStatus());
  }
  const std::string first_two =
      "{\"step\":1,\"loss\":0.5}\n{\"step\":2,\"loss\":0.25}\n{\"step\":2,\"validation_loss\":"
      "0.75}\n";
  EXPECT_EQ(Contents(path), first_two + "{\"step\":3}\n");
  absl::StatusOr<RowFile> metrics = RowFile::Open(path, kMetricsJsonl, 3);
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_EQ(Contents(path), first_two);
  ASSERT_EQ(metrics->Append(R"({"step":3,"loss":1.5})"), absl::OkStatus());
  EXPECT_EQ(Contents(path), first_two + "{\"step\":3,\"loss\":1.5}\n");
  ASSERT_TRUE(RowFile::Open(path, kMetricsJsonl, 1).ok());
  EXPECT_EQ(Contents(path), "");
}

TEST(MetricsJsonlTest, ResumeRefusesOtherFiles) {
  const std::string path = PathFor("metrics.jsonl");
  for (const char* row : {"step,loss", "[1]", "{\"step\":1.5}", "{}"}) {
    Write(path, std::string("{\"step\":1}\n") + row + "\n");
    EXPECT_THAT(Message(RowFile::Open(path, kMetricsJsonl, 9).status()),
                HasSubstr("metrics.jsonl:2: expected a JSON object with a whole number \"step\""));
  }
}

TEST(MetricsJsonlTest, RowsOfTheFirstStepsWithAMemberAreHandedOver) {
  const std::string path = PathFor("metrics.jsonl");
  Write(path,
        "{\"step\":0,\"loss\":3}\n"
        "{\"step\":0,\"validation_loss\":8}\n"
        "{\"step\":1,\"loss\":2}\n"
        "{\"loss\":7}\n"
        "[\"loss\"]\n"
        "{\"step\":1.5,\"loss\":7}\n"
        "{\"step\":2,\"loss\":1}\n"
        "{\"step\":3,\"los");
  const auto losses = [&path](int64_t steps) {
    std::vector<double> found;
    EXPECT_EQ(ForEachMetric(path, "loss", steps,
                            [&found](const nlohmann::json& row) { found.push_back(row["loss"]); }),
              absl::OkStatus());
    return found;
  };
  EXPECT_THAT(losses(9), ElementsAre(3, 2, 1));
  EXPECT_THAT(losses(2), ElementsAre(3, 2));
  EXPECT_THAT(losses(0), IsEmpty());
  EXPECT_TRUE(
      absl::IsNotFound(ForEachMetric(path + ".missing", "loss", 9, [](const nlohmann::json&) {})));
}

using Json = nlohmann::ordered_json;

TEST(SummaryTest, IsIndentedJsonInTheOrderOfSetting) {
  const std::string path = PathFor("summary.json");
  Json summary = {{"z", 0.1}, {"overflow", kInfinity}, {"undefined", kNan}};
  summary["a"] = {{"n", 1}};
  ASSERT_EQ(WriteSummary(path, summary), absl::OkStatus());
  EXPECT_EQ(Contents(path),
            "{\n  \"z\": 0.1,\n  \"overflow\": null,\n  \"undefined\": null,\n  \"a\": {\n    "
            "\"n\": 1\n  }\n}\n");
}

TEST(SummaryTest, DoublesReadBackToTheSameBits) {
  const std::string path = PathFor("summary.json");
  for (const double value : {0.1, 1.0 / 3, 5e-324, 1.7976931348623157e308, -0.0, 123456789.123}) {
    ASSERT_EQ(WriteSummary(path, {{"x", value}}), absl::OkStatus());
    EXPECT_EQ(Json::parse(Contents(path)).at("x").get<double>(), value);
  }
}

TEST(SummaryTest, TextThatIsNoUtf8StillGivesJson) {
  const std::string path = PathFor("summary.json");
  ASSERT_EQ(WriteSummary(path, {{"path",
                                 "a\xff"
                                 "b"}}),
            absl::OkStatus());
  EXPECT_EQ(Json::parse(Contents(path)).at("path").get<std::string>(),
            "a\xEF\xBF\xBD"
            "b");
}

}  // namespace
}  // namespace lockstep
