#include "foresight/prediction.h"

#include <cstdlib>  // setenv
#include <string>

#include "core/base/file.h"
#include "core/base/subprocess.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

// A machine on which everything takes the same time.
constexpr char kMachine[] = R"(
name = "steady"
[device]
memory = "1 GB"
bandwidth = "1 kB/s"
processors = 1
launch = "1000 s"
peak = { f32 = "1 GFLOP/s" }
[node]
devices = 2
link_bandwidth = "1 GB/s"
[measured]
kernels = ["AttentionForward f32 1x1 qkv=64x48 y=64x16 log_sum_exp=8x16 : 1e5 in 1e-3"]
calls = ["all_reduce threads 2 : 1 in 50"]
)";

// Runs a preset's program on a small GPT, and returns what it printed.
std::string Train(const std::string& preset, const std::string& machine, const std::string& more) {
  const std::string folder = testing::TempDir() + "/" + preset;
  EXPECT_TRUE(MakeDirectories(folder).ok());
  const std::string config = folder + "/gpt.toml";
  EXPECT_TRUE(WriteFileAtomically(config, SmallGptConfig()).ok());
  ProcessOptions options;
  options.arguments = {"strategies/" + preset + "/main",
                       "--config",
                       config,
                       "--out",
                       folder + "/run",
                       "--set",
                       "train.steps=4",
                       "--set",
                       more};
  options.environment = {{"LOCKSTEP_MACHINE", machine}};
  const auto result = RunProcess(options);
  EXPECT_TRUE(result.ok() && result->ok()) << result.status() << result->err;
  return result->out;
}

std::string WriteMachine(const std::string& text) {
  const std::string path = testing::TempDir() + "/machine.toml";
  EXPECT_TRUE(WriteFileAtomically(path, text).ok());
  return path;
}

nlohmann::json Summary(const std::string& preset) {
  const auto text = ReadFile(testing::TempDir() + "/" + preset + "/run/summary.json");
  EXPECT_TRUE(text.ok()) << text.status();
  return nlohmann::json::parse(*text);
}

// Kernels that were not measured take 1000 s each; communication takes 50 s a byte and more.
TEST(PredictionTest, SummaryHasTheTimeOfAStepByPart) {
  const std::string summary = Train("ddp", WriteMachine(kMachine), "mesh.dp=2");
  EXPECT_THAT(summary, AllOf(ContainsRegex("time of a step +predicted +measured"),
                             ContainsRegex("forward and backward +[0-9]+[dh]"),
                             ContainsRegex("communication, exposed +[0-9]+[dh]"),
                             ContainsRegex("waiting for other stages +0 ns +0 ns")));
  const nlohmann::json times = Summary("ddp")["time_of_step"];
  EXPECT_GT(times["slowest rank"]["predicted"], 10000);
  EXPECT_GT(times["slowest rank"]["measured"], 0);
  EXPECT_GE(times["optimizer"]["predicted"], 1000);
  // Parts add up to the step, on a rank that waits for nobody.
  double parts = 0;
  for (const auto& [name, time] : times.items()) {
    if (name != "slowest rank" && time.contains("predicted"))
      parts += time["predicted"].get<double>();
  }
  EXPECT_NEAR(parts / times["slowest rank"]["predicted"].get<double>(), 1, 1e-6);
}

// What is not an engine preset is predicted, too.
TEST(PredictionTest, SingleIsPredicted) {
  EXPECT_THAT(Train("single", WriteMachine(kMachine), "mesh.dp=1"),
              ContainsRegex("forward and backward +[0-9]+[dh]"));
}

TEST(PredictionTest, SaysInOneLineWhyThereIsNone) {
  EXPECT_THAT(Train("ddp", testing::TempDir() + "/nowhere.toml", "mesh.dp=2"),
              HasSubstr("\n  time of a step is not predicted: this machine was not measured yet; "
                        "./bazelw run //tools/plan:calibrate does so in 90 s\n"));
  EXPECT_TRUE(Summary("ddp").contains("time_not_predicted"));
  EXPECT_THAT(
      Train("ddp", WriteMachine(kMachine), "mesh.dp=4"),
      ContainsRegex("is not predicted: cluster steady has 2 devices, and the mesh 4 ranks"));
  EXPECT_THAT(Train("ddp", WriteMachine("name = 'broken'\n"), "mesh.dp=2"),
              ContainsRegex("is not predicted: .*machine.toml"));
}

}  // namespace
}  // namespace lockstep
