// The program as users call it: what it prints and writes, and what it says to bad input.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/base/file.h"
#include "core/base/subprocess.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kWorkload[] = "experiments/gpt_markov/workload.toml";

ProcessResult Program(const std::vector<std::string>& arguments) {
  auto result = RunProcess({.arguments = arguments});
  EXPECT_TRUE(result.ok()) << result.status();
  return *std::move(result);
}

ProcessResult Plan(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "tools/plan/plan");
  return Program(arguments);
}

TEST(PlanTest, RanksMeshesAndWritesTheBest) {
  const std::string best = testing::TempDir() + "/best.toml";
  const std::string page = testing::TempDir() + "/plan.html";
  const ProcessResult result = Plan({"--workload", kWorkload, "--cluster", "laptop", "--ranks", "2",
                                     "--explain", "best", "--write", best, "--html", page});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(
      result.out,
      AllOf(
          HasSubstr("2 devices of laptop"), ContainsRegex("pp=1,dp=2,tp=1,b=8 [a-z0-9]+ .* yes"),
          HasSubstr("what limits the step"), HasSubstr("It fits"),
          ContainsRegex("with one option changed\n +run .*\n +pp=1,dp=2,tp=1,b=[0-9]+ "
                        "(ddp|zero1|zero2|fsdp) +[0-9.]+ ms +[0-9.]+ % +[0-9.]+ MiB +yes"),
          ContainsRegex("memory of the fullest rank, by class\n +mesh +"
                        "parameters +gradients +optimizer_state +"),
          ContainsRegex("that computes most, by kind\n +mesh +gradients +loss +norm +parameters "),
          HasSubstr("memory of the fullest rank, 0 along pp")));
  const auto html = ReadFile(page);
  ASSERT_TRUE(html.ok());
  EXPECT_THAT(*html, AllOf(HasSubstr("Time of a step over tp and pp"), HasSubstr("step-timeline"),
                           HasSubstr("step-memory-over-time"), HasSubstr("<figure id=\"cost\">"),
                           HasSubstr("this mesh with fewer and more ranks along dp")));
  // What it wrote trains.
  const ProcessResult run =
      Program({"strategies/mesh/main", "--config", best, "--set", "train.steps=2", "--set",
               "validation.every=0", "--out", testing::TempDir() + "/planned_run"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
}

TEST(PlanTest, AnswersQuestions) {
  const std::string page = testing::TempDir() + "/questions.html";
  const ProcessResult result = Plan({"--workload", kWorkload, "--cluster", "laptop", "--cluster",
                                     "two_hosts_1gbit", "--ranks", "1,2", "--vary",
                                     "link=1GB/s,2GB/s", "--budget", "1e15FLOP", "--html", page});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* cluster : {"laptop", "two_hosts_1gbit"}) {
    for (const char* rest : {", link 1GB/s +1 ", ", link 2GB/s +2 ", ", link 2GB/s +2 +x 2 "}) {
      EXPECT_THAT(result.out, ContainsRegex(std::string(cluster) + rest));
    }
  }
  EXPECT_THAT(result.out, HasSubstr("time for the budget"));
  const auto html = ReadFile(page);
  ASSERT_TRUE(html.ok()) << html.status();
  EXPECT_THAT(*html, AllOf(HasSubstr("<figure id=\"speed\">"), HasSubstr("<figure id=\"cost\">"),
                           HasSubstr("-timeline\">"), HasSubstr("-memory-over-time\">"),
                           HasSubstr("Time of a step over tp and pp")));
}

TEST(PlanTest, CountsSamplesOfImages) {
  const ProcessResult result = Plan({"--workload", "experiments/resnet_shapes/workload.toml",
                                     "--cluster", "laptop", "--mesh", "dp=2"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("samples/s"), Not(HasSubstr("tokens/s")),
                                HasSubstr("that computes most, by kind")));
}

TEST(PlanTest, ASingleRankWaitsForNothing) {
  const ProcessResult result =
      Plan({"--workload", kWorkload, "--cluster", "laptop", "--mesh", "dp=1"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("memory of the fullest rank, by class"),
                                Not(HasSubstr("that computes most, by kind"))));
}

// The workloads that are shipped for plans alone and that no measurement is compared with. Small
// batches: few micro-batches are quickly planned.
TEST(PlanTest, KnowsPublishedModels) {
  struct Case {
    std::vector<std::string> arguments;
    std::string line;
  };
  for (const Case& one : std::vector<Case>{
           {{"llama3_8b", "--mesh", "dp=8,tp=8"}, "pp=1,dp=8,tp=8,b=1 zero1, sp .* yes"},
           {{"llama3_8b", "--mesh", "dp=8,cp=4,tp=8"}, "pp=1,dp=8,cp=4,tp=8,b=1 zero1, sp .* yes"},
           {{"llama3_70b", "--mesh", "pp=4,dp=16,tp=8", "--set", "batch.size=32"},
            "pp=4,dp=16,tp=8,b=1 "},
           {{"llama3_405b", "--mesh", "pp=16,dp=64,tp=8", "--set", "batch.size=64"},
            "pp=16,dp=64,tp=8,b=1 "},
           {{"mixtral_8x7b", "--mesh", "dp=32,ep=8,tp=4", "--set", "data.context=4096"},
            "pp=1,dp=32,tp=4,ep=8,b=[0-9]+ zero1, sp .* yes"}}) {
    std::vector<std::string> arguments = {"--cluster", "h100", "--workload"};
    arguments.insert(arguments.end(), one.arguments.begin(), one.arguments.end());
    const ProcessResult result = Plan(arguments);
    EXPECT_THAT(result.out, ContainsRegex(one.line)) << result.err;
  }
}

TEST(PlanTest, PlansForAnotherFramework) {
  const ProcessResult result =
      Plan({"--workload", "gpt3_175b", "--cluster", "a100_80g", "--mesh", "pp=8,dp=2,tp=8", "--set",
            "batch.size=32", "--dialect", "megatron_2022"});
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("pp=8,dp=2,tp=8,b=1 1f1b, zero1, sp "),
                    ContainsRegex("mesh +parameters, gradients and optimizer +activations\n")))
      << result.err;
}

TEST(PlanTest, SaysWhyAMeshIsRefused) {
  const ProcessResult result =
      Plan({"--workload", kWorkload, "--cluster", "laptop", "--ranks", "8", "--explain", "pp=8"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("pp=8 is refused: mesh.pp is 8, but the model has"));
}

TEST(PlanTest, SaysWhyMeshesAreRefused) {
  const ProcessResult result =
      Plan({"--workload", kWorkload, "--cluster", "laptop", "--ranks", "8"});
  EXPECT_THAT(result.out,
              ContainsRegex("refused\n +runs +such as +because\n(.*\n)*"
                            " +1 +pp=8,dp=1,tp=1,b=1 1f1b +mesh.pp is 8, but the model"));
}

TEST(PlanTest, SaysWhatMakesARunFit) {
  const auto explain = [](const std::string& memory) {
    return Plan({"--workload", kWorkload, "--cluster", "laptop", "--mesh", "dp=2", "--memory",
                 memory, "--explain", "pp=1,dp=2,tp=1,b=8 zero1"})
        .out;
  };
  EXPECT_THAT(explain("1GiB"), Not(HasSubstr("it fit:")));
  EXPECT_THAT(explain("5.5MiB"),
              HasSubstr("One option makes it fit: pp=1,dp=1,cp=2,tp=1,b=8 zero1 takes"));
  EXPECT_THAT(explain("4.5MiB"),
              HasSubstr("Several options make it fit: pp=1,dp=1,cp=2,tp=1,b=8 fsdp, full takes"));
  EXPECT_THAT(explain("1MiB"),
              HasSubstr("It fits with none of the other options that were tried: it needs more "
                        "ranks along pp or tp, or smaller micro-batches."));
}

TEST(PlanTest, SaysThatNothingFits) {
  const std::string best = testing::TempDir() + "/none.toml";
  ProcessResult result = Plan({"--workload", kWorkload, "--cluster", "laptop", "--ranks", "2",
                               "--memory", "1MiB", "--explain", "best"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, AllOf(HasSubstr("No run fits."), HasSubstr("It does not fit: it needs")));
  result = Plan({"--workload", kWorkload, "--cluster", "laptop", "--ranks", "2", "--memory", "1MiB",
                 "--write", best});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("none is written: --explain names one to write"));
  EXPECT_FALSE(PathExists(best));
}

struct BadInput {
  std::vector<std::string> arguments;
  std::string message;
};

TEST(PlanTest, SaysWhatIsWrong) {
  const std::string cluster = R"(name = "broken"
[device]
memory = "1 GB"
bandwidth = "1 GB/s"
peak = { f32 = "1 TFLOP/s" }
processors = 1
[node]
devices = 2
link_bandwidth = "1 GB/s"
)";
  const std::string broken = testing::TempDir() + "/broken.toml";
  ASSERT_TRUE(WriteFileAtomically(broken, absl::StrReplaceAll(cluster, {{"\nbandwidth = \"1",
                                                                         "\nbandwidth = \"0"}}))
                  .ok());
  const std::string mistyped = testing::TempDir() + "/mistyped.toml";
  ASSERT_TRUE(
      WriteFileAtomically(mistyped, absl::StrCat(cluster, "[fitted]\nskew_time = 1.0\n")).ok());
  const std::vector<std::string> good = {"--workload", kWorkload, "--cluster", "laptop"};
  for (const BadInput& bad : std::vector<BadInput>{
           {{}, "name a workload"},
           {{"--workload", kWorkload}, "name a cluster"},
           {{"--workload", "gpt5", "--cluster", "h100"}, "gpt5"},
           {{"--workload", kWorkload, "--cluster", "h1000"}, "h1000"},
           {{"--workload", kWorkload, "--cluster", broken}, "bandwidth"},
           {{"--workload", kWorkload, "--cluster", mistyped},
            "fitted.skew_time; [fitted] has product_efficiency, "},
           {{"--workload", kWorkload, "--cluster", "laptop", "--set", "data_parallel.shard=zero1"},
            "data_parallel.shard is \"zero1\"; did you mean \"optimizer\"? Known are "},
           {{"--workload", kWorkload, "--cluster", "laptop", "--set", "mesh.tp=2"},
            "--set mesh.tp: a plan chooses this; --mesh plans one mesh alone"},
           {{"--workload", kWorkload, "--cluster", "h100", "--cluster", "h100"},
            "two clusters are called h100"},
           {{"--workload", kWorkload, "--cluster", "laptop", "--ranks", "9"}, "has 8 devices"},
           {{"--workload", kWorkload, "--cluster", "laptop", "--ranks", "two"}, "--ranks two"},
           {{"--workload", kWorkload, "--cluster", "laptop", "--memory", "40"}, "40"},
           {{"--workload", kWorkload, "--cluster", "laptop", "--budget", "1e21"}, "1e21"},
           {{"--workload", kWorkload, "--cluster", "laptop", "--vary", "colour=1"}, "colour"},
           {{"--workload", kWorkload, "--cluster", "laptop", "--mesh", "pp=2", "--ranks", "2"},
            "leave --ranks out"},
           {{"--workload", kWorkload, "--cluster", "laptop", "--ranks", "1,2", "--explain", "best"},
            "one number of ranks"},
           {{"--workload", kWorkload, "--cluster", "laptop", "--ranks", "2", "--explain", "x"},
            "--explain x"},
           {{"--workload", kWorkload, "--cluster", "laptop", "--png"}, "--html FILE"},
           {{"--workload", kWorkload, "--cluster", "laptop", "--dialect", "french"}, "french"},
           {{"--workload", kWorkload, "--cluster", "laptop", "--set", "model.width=0"}, "width"}}) {
    const ProcessResult result = Plan(bad.arguments);
    EXPECT_EQ(result.exit_code, 1) << bad.message;
    EXPECT_THAT(result.err, AllOf(HasSubstr(bad.message), EndsWith("\n")));
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  }
}

}  // namespace
}  // namespace lockstep
