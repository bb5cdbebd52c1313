// What a run leaves in its directory: its whole configuration, what each step was trained with, the
// best checkpoint, and a summary that says when it ended and what its times are of.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/base/file.h"
#include "core/base/subprocess.h"
#include "core/config/config.h"
#include "core/run/testing/trainer_program_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RunFilesTest : public TrainerProgramTest {
 protected:
  json Summary(const std::string& out = "out") const {
    return json::parse(ReadFile(Path(out + "/summary.json")).value_or(""), nullptr, false);
  }

  std::vector<json> Metrics() const {
    std::vector<json> rows;
    for (const auto line : absl::StrSplit(ReadFile(Path("out/metrics.jsonl")).value_or(""), '\n',
                                          absl::SkipEmpty())) {
      rows.push_back(json::parse(line.begin(), line.end()));
    }
    return rows;
  }

  // By the number of steps behind them.
  std::map<int64_t, double> Validations() const {
    std::map<int64_t, double> losses;
    for (const json& row : Metrics()) {
      if (row.contains("validation_loss")) {
        losses[row["step"].get<int64_t>() + 1] = row["validation_loss"];
      }
    }
    return losses;
  }

  std::set<std::string> Names(const std::string& folder) const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(Path(folder))) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

  // Runs what `out` says of its run, in `again`.
  void RunItsConfigurationAgain() const {
    const auto again = RunProcess(
        {.arguments = {kDdp, "--config", Path("out/config.toml"), "--out", Path("again")}});
    ASSERT_TRUE(again.ok()) << again.status();
    ASSERT_TRUE(again->ok()) << again->err;
    EXPECT_EQ(*ReadFile(Path("again/config.toml")), *ReadFile(Path("out/config.toml")));
  }
};

// Both files have all keys, and what nobody gave; the copy trains the same.
TEST_F(RunFilesTest, TheConfigurationIsThere) {
  ASSERT_TRUE(Start(kDdp, {"--set", "run.threads=3"}).ok());
  const std::string config = *ReadFile(Path("out/config.toml"));
  for (const char* line :
       {"beta1 = 0.9\n", "threads = 3\n", "shards = 2\n", "dp = 2\n", "bucket_bytes = 26214400\n",
        "batch_size = 4\n", "on_nan = \"stop\"\n", "vocabulary = 16\n", "seed = 1\n"}) {
    EXPECT_THAT(config, HasSubstr(line));
  }
  const json summary = Summary();
  EXPECT_EQ(summary["threads"], 3);
  EXPECT_EQ(summary["configuration"]["run"]["threads"], 3);
  EXPECT_EQ(summary["configuration"]["optimizer"]["beta1"], 0.9);
  EXPECT_EQ(summary["configuration"]["probe"]["places"], json::array({"*"}));
  EXPECT_EQ(summary["configuration"]["validation"]["at_start"], false);
  EXPECT_EQ(summary["config"], Config::FromString(config, "config").value().Fingerprint());

  ASSERT_NO_FATAL_FAILURE(RunItsConfigurationAgain());
  EXPECT_EQ(*ReadFile(Path("again/losses.csv")), *ReadFile(Path("out/losses.csv")));
}

// The named schedule that it has in place of actions is not written beside them.
TEST_F(RunFilesTest, AConfigurationWithActionsIsAcceptedAgain) {
  ASSERT_TRUE(Start(kDdp, {"--set", "pipeline.actions=\"0F0,0B0\""}).ok());
  EXPECT_THAT(*ReadFile(Path("out/config.toml")), HasSubstr("actions = \"0F0,0B0\"\n"));
  RunItsConfigurationAgain();
}

TEST_F(RunFilesTest, EachStepHasItsLearningRateAndGradientNorm) {
  ASSERT_TRUE(Start(kSingle, {"--set", "schedule.kind=linear", "--set", "train.steps=3"}).ok());
  ASSERT_TRUE(Start(kSingle, {"--set", "schedule.kind=linear", "--resume"}).ok());
  std::string expected = "step,learning_rate,gradient_norm\n";
  int64_t steps = 0;
  for (const json& row : Metrics()) {
    if (!row.contains("learning_rate")) continue;
    absl::StrAppendFormat(&expected, "%d,%.9g,%.9g\n", row["step"].get<int64_t>(),
                          row["learning_rate"].get<double>(), row["gradient_norm"].get<double>());
    ++steps;
  }
  EXPECT_EQ(steps, 6);
  EXPECT_EQ(*ReadFile(Path("out/steps.csv")), expected);
  // 0.01 on a line to 0 over six steps.
  EXPECT_THAT(expected, HasSubstr(absl::StrFormat("\n3,%.9g,", 0.01 * (6 - 3) / 6)));
}

TEST_F(RunFilesTest, ARunThatGoesOnKeepsWhatItWritesAnew) {
  const std::vector<std::string> saves = {"--set", "checkpoint.every=2", "--set",
                                          "checkpoint.keep=3"};
  ASSERT_TRUE(Start(kSingle, saves).ok());
  const std::string losses = *ReadFile(Path("out/losses.csv"));
  const std::string config = *ReadFile(Path("out/config.toml"));
  const std::string summary = *ReadFile(Path("out/summary.json"));
  fs::remove(Path("out/checkpoints/step-00000006.safetensors"));
  auto resume = saves;
  resume.insert(resume.end(), {"--resume", "--set", "trace.steps=1"});
  const ProcessResult result = Start(kSingle, resume);
  ASSERT_TRUE(result.ok()) << result.err;
  EXPECT_EQ(*ReadFile(Path("out/losses.csv")), losses);
  EXPECT_THAT(Names("out/earlier"), ElementsAre("1"));
  EXPECT_THAT(Names("out/earlier/1"), ElementsAre("config.toml", "losses.csv", "metrics.jsonl",
                                                  "steps.csv", "summary.json"));
  EXPECT_EQ(*ReadFile(Path("out/earlier/1/losses.csv")),
            "step,loss\n" + losses.substr(losses.find("\n4,") + 1));
  EXPECT_EQ(*ReadFile(Path("out/earlier/1/config.toml")), config);
  EXPECT_EQ(*ReadFile(Path("out/earlier/1/summary.json")), summary);
}

// A learning rate so large that losses go up and down.
const std::vector<std::string> kRestless = {
    "--set", "schedule.learning_rate=0.6", "--set", "train.steps=24",
    "--set", "schedule.total_steps=24",    "--set", "validation.every=2"};

std::vector<std::string> With(std::vector<std::string> arguments,
                              const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST_F(RunFilesTest, TheBestCheckpointStays) {
  const std::vector<std::string> best = With(kRestless, {"--set", "checkpoint.best=true"});
  ASSERT_TRUE(Start(kSingle, best).ok());
  const std::map<int64_t, double> losses = Validations();
  ASSERT_EQ(losses.size(), 12u);
  const auto lowest =
      std::ranges::min_element(losses, {}, [](const auto& at) { return at.second; });
  ASSERT_LT(lowest->first, 24) << "the last is the lowest: nothing is shown";
  const std::string name = absl::StrFormat("step-%08d.safetensors", lowest->first);
  EXPECT_THAT(Names("out/best"), ElementsAre(name));

  // The state of that very step.
  const std::string bytes = *ReadFile(Path("out/best/" + name));
  const ProcessResult from =
      Start(kSingle, With(kRestless, {"--out", Path("from"), "--set", "train.steps=1", "--set",
                                      "validation.at_start=true", "--set",
                                      "model.init=" + Path("out/best/" + name)}));
  ASSERT_TRUE(from.ok()) << from.err;
  EXPECT_EQ(Summary("from")["validation_at_start"]["loss"], lowest->second);

  // A run that is stopped and goes on keeps the same one.
  fs::remove_all(Path("out"));
  ASSERT_TRUE(Start(kSingle, With(best, {"--set", "train.steps=10"})).ok());
  ASSERT_TRUE(Start(kSingle, With(best, {"--resume"})).ok());
  EXPECT_THAT(Names("out/best"), ElementsAre(name));
  EXPECT_EQ(*ReadFile(Path("out/best/" + name)), bytes);
}

// The one that it would have is gone, as a later one had replaced it, and that one is removed.
TEST_F(RunFilesTest, ARunThatGoesOnFromBeforeItsBestCheckpointKeepsTheNext) {
  const std::vector<std::string> best =
      With(kRestless, {"--set", "checkpoint.best=true", "--set", "checkpoint.every=2", "--set",
                       "checkpoint.keep=12"});
  ASSERT_TRUE(Start(kSingle, best).ok());
  std::map<int64_t, double> losses = Validations();
  const int64_t lowest =
      std::ranges::min_element(losses, {}, [](const auto& at) { return at.second; })->first;
  // From where on the next loss is none of the lowest.
  int64_t from = 4;
  while (from < lowest && losses[from + 2] < losses[from]) from += 2;
  ASSERT_LT(from + 2, lowest) << "nothing is shown";
  for (int64_t steps = from + 2; steps <= 24; steps += 2) {
    fs::remove(Path(absl::StrFormat("out/checkpoints/step-%08d.safetensors", steps)));
  }
  const ProcessResult again =
      Start(kSingle, With(best, {"--resume", "--set", absl::StrCat("train.steps=", from + 2)}));
  ASSERT_TRUE(again.ok()) << again.err;
  EXPECT_THAT(Names("out/best"), ElementsAre(absl::StrFormat("step-%08d.safetensors", from + 2)));
}

TEST_F(RunFilesTest, PatienceEndsARun) {
  ASSERT_TRUE(Start(kSingle, kRestless).ok());
  const std::map<int64_t, double> losses = Validations();
  // The end that a plain loop over the curve of the whole run finds.
  double lowest = INFINITY;
  int64_t since = 0, end = 0;
  for (const auto& [steps, loss] : losses) {
    since = loss < lowest ? 0 : since + 1;
    lowest = std::min(lowest, loss);
    end = steps;
    if (since == 2) break;
  }
  ASSERT_LT(end, 24) << "the whole run shows nothing";
  const std::string whole = *ReadFile(Path("out/losses.csv"));

  for (const char* program : {kSingle, kDdp}) {
    fs::remove_all(Path("out"));
    const std::vector<std::string> patient =
        With(kRestless, {"--set", "validation.patience=2", "--set", "cut.shards=1", "--set",
                         program == kDdp ? "mesh.dp=1" : "cut.tokens=1"});
    const ProcessResult result = Start(program, patient);
    ASSERT_TRUE(result.ok()) << result.err;
    EXPECT_THAT(result.out, HasSubstr(absl::StrCat("ended after step ", end, " of 24")));
    const std::string losses_csv = *ReadFile(Path("out/losses.csv"));
    EXPECT_EQ(losses_csv, whole.substr(0, losses_csv.size()));
    const json summary = Summary();
    EXPECT_EQ(summary["steps"], end);
    EXPECT_EQ(summary["ended_early_of_steps"], 24);
    EXPECT_EQ(summary["validation_loss"], losses.at(end));
    EXPECT_TRUE(fs::exists(Path(absl::StrFormat("out/checkpoints/step-%08d.safetensors", end))));

    // Whoever takes its summary gets the same one again, and more patience goes on.
    fs::remove(Path("out/summary.json"));
    ASSERT_TRUE(Start(program, With(patient, {"--resume"})).ok());
    EXPECT_EQ(Summary()["steps"], end);
    EXPECT_EQ(Summary()["parameter_hash"], summary["parameter_hash"]);
    ASSERT_TRUE(Start(program, With(patient, {"--resume", "--set", "validation.patience=0"})).ok());
    EXPECT_EQ(*ReadFile(Path("out/losses.csv")), whole);
  }
  EXPECT_THAT(Fail(kSingle, {"--set", "validation.patience=2"}), HasSubstr("set validation.every"));
}

TEST_F(RunFilesTest, TimesOfTheWarmUpAreCalledSo) {
  for (const auto& [steps, is_warm_up] : {std::pair(1, true), {2, true}, {3, false}, {5, false}}) {
    const ProcessResult result = Start(kSingle, {"--set", absl::StrCat("train.steps=", steps)});
    ASSERT_TRUE(result.ok()) << result.err;
    const json summary = Summary();
    EXPECT_EQ(summary.value("step_times_are_of_warm_up", false), is_warm_up) << steps;
    EXPECT_GT(summary["step_seconds"], 0) << steps;
    const auto label = HasSubstr(absl::StrCat("times are of the first ", steps, " step"));
    EXPECT_EQ(testing::Value(result.out, label), is_warm_up) << result.out;
  }
}

// Before the first step ranks agree that they were started alike; that is sent once in a run.
TEST_F(RunFilesTest, TrafficBeforeTheFirstStepIsShownApart) {
  ASSERT_TRUE(Start(kDdp, {}).ok());
  const json summary = Summary();
  ASSERT_TRUE(summary["traffic_bytes_at_start"].is_object());
  EXPECT_FALSE(summary["traffic_bytes_at_start"].empty());
  EXPECT_FALSE(summary["traffic_bytes_per_step"].empty());
  for (const auto& [name, bytes] : summary["traffic_bytes_at_start"].items()) {
    EXPECT_GT(bytes, 0) << name;
    EXPECT_FALSE(summary["traffic_bytes_per_step"].contains(name)) << name;
  }
}

}  // namespace
}  // namespace lockstep
