// Every strategy with ranks as processes under mpirun: the losses of `single`, and bytes and memory
// as predicted.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/subprocess.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "strategies/testing/launched_run.h"

namespace lockstep {
namespace {

// Micro-batches of two sizes. Enough layers that one micro-batch's activations between two stages
// are below 1 % of what a rank keeps for backward.
constexpr char kTables[] = R"([train]
steps = 3
clip_norm = 1.0
[cut]
shards = 2
micro_batches = 4
tokens = 2
features = 2
[checkpoint]
every = 1
)";

struct Case {
  std::string name;
  std::string strategy;
  std::string mesh;                       // the axes along which there are two ranks: "pp dp"
  std::vector<std::string> options = {};  // "pipeline.schedule=zb_v"
  bool has_stages = false;
  bool has_experts = false;
};

class ProcessesTest : public LaunchedRunTest, public testing::WithParamInterface<Case> {
 protected:
  ProcessesTest()
      : LaunchedRunTest(
            absl::StrCat("strategies/", GetParam().strategy, "/main"),
            GetParam().has_experts ? LaunchedExperts(kTables) : LaunchedGpt(6, kTables)) {}
};

TEST_P(ProcessesTest, HasTheLossesOfSingleAndThePredictedCosts) {
  const Case& c = GetParam();
  const ProcessResult single = RunProgram("strategies/single/main", {}, "single");
  ASSERT_TRUE(single.ok()) << single.err;
  std::vector<std::string> options;
  int ranks = 1;
  for (const std::string axis : {"pp", "dp", "cp", "tp"}) {
    if (c.mesh.find(axis) == std::string::npos) continue;
    options.insert(options.end(), {"--set", absl::StrCat("mesh.", axis, "=2")});
    ranks *= 2;
  }
  for (const std::string& option : c.options) {
    options.insert(options.end(), {"--set", option});
  }
  const ProcessResult processes = Run(MpiRun(ranks), "processes", options);
  ASSERT_TRUE(processes.ok()) << processes.err;

  EXPECT_EQ(File("processes/losses.csv"), File("single/losses.csv"));
  const nlohmann::json summary = Summary("processes");
  EXPECT_EQ(summary["parameter_hash"], Summary("single")["parameter_hash"]);
  EXPECT_FALSE(summary["traffic_bytes_per_step"].empty());
  for (const char* often : {"traffic_bytes_per_step", "traffic_bytes_once"}) {
    for (const auto& [kind, bytes] : summary[often].items()) {
      EXPECT_DOUBLE_EQ(bytes["predicted"], bytes["measured"]) << kind;
    }
  }
  EXPECT_EQ(summary["memory"].size(), 7u);
  for (const auto& [memory_class, bytes] : summary["memory"].items()) {
    ASSERT_TRUE(bytes.contains("predicted")) << memory_class;
    const double measured = bytes["measured"], predicted = bytes["predicted"];
    // Activations that stages send each other stay until they have been taken, which depends on
    // time.
    const bool depends_on_time = c.has_stages && memory_class == "activations";
    EXPECT_NEAR(measured, predicted, depends_on_time ? 0.05 * predicted : 0) << memory_class;
  }
  // Two checkpoints were written beside the steps, from copies; the last one was not.
  EXPECT_GT(summary["memory"]["checkpoint"]["measured"], 0);
  EXPECT_EQ(summary["checkpoints"]["written_beside_training"], 2);
  // Ranks that are processes hold what comes from the others until it is summed.
  EXPECT_GT(summary["memory"]["communication"]["measured"], 0);
}

INSTANTIATE_TEST_SUITE_P(
    Strategies, ProcessesTest,
    testing::Values(
        Case{.name = "Ddp",
             .strategy = "ddp",
             .mesh = "dp",
             .options = {"data_parallel.first_bucket_bytes=4096",
                         "data_parallel.bucket_bytes=100000"}},
        Case{.name = "Fsdp", .strategy = "fsdp", .mesh = "dp"},
        Case{.name = "Zero1", .strategy = "zero1", .mesh = "dp"},
        Case{.name = "Zero2", .strategy = "zero2", .mesh = "dp"},
        Case{.name = "Tp", .strategy = "tp", .mesh = "dp tp"},
        Case{.name = "TpInSequences",
             .strategy = "tp",
             .mesh = "dp tp",
             .options = {"tensor_parallel.sequence_parallel=true"}},
        Case{.name = "Cp", .strategy = "cp", .mesh = "dp cp"},
        Case{.name = "Ep",
             .strategy = "ep",
             .mesh = "dp cp",
             .options = {"mesh.ep=4"},
             .has_experts = true},
        Case{.name = "AllAxes",
             .strategy = "fsdp_pipe",
             .mesh = "pp dp tp",
             .options = {"pipeline.schedule=1f1b", "tensor_parallel.sequence_parallel=true"},
             .has_stages = true},
        Case{.name = "FsdpPipeZeroBubbleV",
             .strategy = "fsdp_pipe",
             .mesh = "pp dp",
             .options = {"pipeline.schedule=zb_v"},
             .has_stages = true},
        Case{.name = "GPipeByTime",
             .strategy = "gpipe",
             .mesh = "pp dp",
             .options = {"pipeline.schedule=1f1b", "pipeline.balance=time",
                         "recompute.micro_batches=never"},
             .has_stages = true},
        Case{.name = "GPipeDualPipeV",
             .strategy = "gpipe",
             .mesh = "pp dp",
             .options = {"pipeline.schedule=dualpipe_v", "recompute.micro_batches=never"},
             .has_stages = true}),
    [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace lockstep
