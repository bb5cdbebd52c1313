// The program on a small GPT: runs that agree, and a preset whose runs are made to differ.

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/subprocess.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kWorkload[] = R"(name = "small"
[batch]
size = 8
[cut]
shards = 2
micro_batches = 2
[model]
kind = "transformer"
layers = 2
heads = 2
width = 16
dropout = 0.1
[data]
kind = "markov"
context = 8
validation_samples = 8
[optimizer]
kind = "adamw"
[train]
steps = 9
clip_norm = 1.0
[schedule]
learning_rate = 0.01
total_steps = 9
)";

class CertifyTest : public testing::Test {
 protected:
  CertifyTest() : folder_(testing::TempDir() + "/certify") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    EXPECT_TRUE(WriteFileAtomically(folder_ + "/workload.toml", kWorkload).ok());
  }

  static std::string Strategy(const std::string& name) {
    return absl::StrCat(name, "=strategies/", name, "/main");
  }

  ProcessResult Certify(const std::vector<std::string>& programs,
                        const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"tools/certify/certify",
                                          "--mpirun=build_defs/mpi_test.sh", "--steps=4"};
    arguments.insert(arguments.end(), programs.begin(), programs.end());
    arguments.insert(arguments.end(), {"--", "--config", folder_ + "/workload.toml"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunProcess({.arguments = arguments}).value();
  }

  // A preset's program that a bug has found its way into.
  std::string Broken(const std::string& strategy, const std::string& assignment) {
    const std::string script = absl::StrCat(folder_, "/broken.sh");
    EXPECT_TRUE(WriteFileAtomically(script, absl::StrCat("#!/bin/sh\nexec strategies/", strategy,
                                                         "/main \"$@\" --set ", assignment, "\n"))
                    .ok());
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    return absl::StrCat(strategy, "=", script);
  }

  const std::string folder_;
};

TEST_F(CertifyTest, EveryPresetHasTheBitsOfSingle) {
  const ProcessResult result =
      Certify({Strategy("single"), Strategy("ddp"), Strategy("fsdp"), Strategy("tp")},
              {"--set", "cut.features=2", "--ranks=4"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("with cut.features=2, cut.micro_batches=2, cut.shards=2"));
  EXPECT_THAT(result.out, ContainsRegex("single  pp=1,dp=1,tp=1 +1  threads .* reference\n"));
  EXPECT_THAT(result.out, ContainsRegex("fsdp    pp=1,dp=2,tp=2 +[13]  mpi .* same\n"));
  EXPECT_THAT(result.out, ContainsRegex("tp      pp=1,dp=2,tp=2 +1  threads .* same\n"));
  EXPECT_THAT(result.out, ContainsRegex("all [0-9]+ runs have the same bits in all 4 steps"));
  EXPECT_THAT(result.out, Not(HasSubstr("left out")));
}

// Each leg keeps its mesh: the program of `ddp` stands for one that is configured with legs.
TEST_F(CertifyTest, ARunWithLegsHasTheBitsOfSingle) {
  const std::string legs =
      Broken("ddp", R"('train.legs=["1: single", "2: tp tp=2", "9: fsdp dp=2"]')");
  const ProcessResult result =
      Certify({Strategy("single"), legs}, {"--set", "cut.features=2", "--ranks=4"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, ContainsRegex("ddp +legs +1  threads .* same\n"));
  EXPECT_THAT(result.out, ContainsRegex("ddp +legs +3  mpi .* same\n"));
  EXPECT_THAT(result.out, Not(HasSubstr("left out")));
  const ProcessResult fewer =
      Certify({Strategy("single"), legs}, {"--set", "cut.features=2", "--ranks=1"});
  EXPECT_THAT(fewer.out, HasSubstr("its legs have up to 4 ranks, and --ranks is 1"));
}

TEST_F(CertifyTest, WithoutFeatureLeavesTensorParallelIsLeftOut) {
  const ProcessResult result =
      Certify({Strategy("single"), Strategy("tp")}, {"--backends=threads", "--threads=1"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("left out:\n  tp its default mesh: cut.features is 1, but "
                                    "mesh.tp is 2"));
  EXPECT_THAT(result.out, ContainsRegex("tp      pp=1,dp=2,tp=1 .* same\n"));
}

TEST_F(CertifyTest, TokensThatAreNotCutAreLeftOut) {
  const ProcessResult result =
      Certify({Strategy("single"), Broken("tp", "tensor_parallel.sequence_parallel=true")},
              {"--set", "cut.features=2"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("left out:\n  tp its default mesh: cut.tokens is 1, but "
                                    "mesh.tp is 2"));
}

// Weight decay moves weights, and neither the first loss nor the first gradients.
TEST_F(CertifyTest, ARunThatDiffersEndsItWithStepAndTensor) {
  const ProcessResult result =
      Certify({Strategy("single"), Broken("ddp", "optimizer.weight_decay=0.5"), Strategy("fsdp")},
              {"--backends=threads", "--threads=1"});
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  EXPECT_THAT(result.out, ContainsRegex("ddp .* DIFFERS\n"));
  EXPECT_THAT(result.out, ContainsRegex("ddp.pp=1,dp=1,tp=1.1_threads.threads parts from "
                                        "single.pp=1,dp=1,tp=1.1_threads.threads\nat step 0: loss "
                                        "and gradient norm are the same, but the hash of "
                                        "[a-z_.0-9]*weight is [0-9a-f]{16}, not"));
  EXPECT_THAT(result.out, Not(ContainsRegex("\nfsdp")));
}

TEST_F(CertifyTest, AnotherSeedDiffersInTheFirstLoss) {
  const ProcessResult result = Certify({Strategy("single"), Broken("fsdp", "train.seed=9")},
                                       {"--backends=mpi", "--threads=2", "--ranks=2"});
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  EXPECT_THAT(result.out, ContainsRegex("fsdp.* parts from single.*\nat step 0: the loss is "));
}

TEST_F(CertifyTest, OutKeepsTheRuns) {
  const ProcessResult result =
      Certify({Strategy("single")}, {"--threads=2", "--out", folder_ + "/runs"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(std::filesystem::exists(folder_ +
                                      "/runs/single.pp=1,dp=1,tp=1.2_threads.threads/hashes.csv"));
}

TEST_F(CertifyTest, MistakesEndInOneMessage) {
  const std::vector<std::string> programs = {Strategy("single"), Strategy("ddp")};
  const auto error = [&](const std::vector<std::string>& more) {
    const ProcessResult result = Certify(programs, more);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  EXPECT_THAT(error({"--set", "optimizer.lrr=1"}), HasSubstr("optimizer.lrr"));
  EXPECT_THAT(error({"--presets=dpp"}), HasSubstr("--presets dpp: the workload has single, ddp"));
  EXPECT_THAT(error({"--backends=nccl"}),
              HasSubstr("there is no such backend; use threads or mpi"));
  EXPECT_THAT(error({"--threads=0"}), HasSubstr("--threads 0: give a whole number from 1"));
  EXPECT_THAT(error({"--ranks=0"}), HasSubstr("--ranks 0: give a whole number from 1"));
}

// Not left out, but an error: the settings were accepted.
TEST_F(CertifyTest, ARunThatFailsIsNamed) {
  const ProcessResult result = Certify({Strategy("single"), Broken("ddp", "memory.limit=10")},
                                       {"--backends=threads", "--threads=1"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, ContainsRegex("ddp .* FAILED\n"));
  EXPECT_THAT(result.err, ContainsRegex("^ddp.*exit code 1: .*memory.limit"));
}

// Only what a program refuses with a message is left out.
TEST_F(CertifyTest, AProgramThatCrashesIsAnError) {
  const ProcessResult result = Certify({Strategy("single"), "ddp=/bin/false"}, {});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err, "/bin/false: exit code 1: \n");
}

}  // namespace
}  // namespace lockstep
