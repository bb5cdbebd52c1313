// Probes of a GPT-2 and a Llama of transformers, recorded once by record_torch_probes.py: held to
// runs of Lockstep that are made here.

#include <string>

#include "core/base/file.h"
#include "core/config/config.h"
#include "core/probe/probed_run.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"
#include "tools/divergence/foreign.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

const std::string kFolder = "tools/divergence/recorded/";

// What //tools/divergence says of a recorded run beside `single`'s.
std::string Replay(const std::string& model, const std::string& recorded,
                   const Assignments& assignments) {
  const absl::StatusOr<std::string> workload = ReadFile(kFolder + model + ".toml");
  EXPECT_TRUE(workload.ok()) << workload.status();
  RunStrategy(SingleStrategy(), MakeModel, *workload,
              With({"probe.steps=3", "probe.values=true"}, assignments));
  const absl::StatusOr<ProbedRun> ours = ReadProbedRun(RunFolder());
  const absl::StatusOr<ProbedRun> theirs = ReadProbedRun(kFolder + recorded);
  const absl::StatusOr<Config> config = Config::FromFile(RunFolder() + "/config.toml");
  EXPECT_TRUE(ours.ok() && theirs.ok() && config.ok())
      << ours.status() << theirs.status() << config.status();
  if (!ours.ok() || !theirs.ok() || !config.ok()) return "";
  const absl::StatusOr<ForeignComparison> comparison = CompareForeign(*ours, *config, *theirs);
  EXPECT_TRUE(comparison.ok()) << comparison.status();
  return comparison.ok() ? comparison->text : "";
}

TEST(RecordedTest, AGpt2WithoutAFaultIsNotReported) {
  EXPECT_THAT(Replay("gpt2", "gpt2", {"model.layers=1"}), HasSubstr("no report"));
}

TEST(RecordedTest, ALlamaWithoutAFaultIsNotReported) {
  EXPECT_THAT(Replay("llama", "llama", {"model.layers=1"}), HasSubstr("no report"));
}

// The update is judged, too: it was made with another decay than it is held to.
TEST(RecordedTest, AnotherOptimizerIsReported) {
  EXPECT_THAT(Replay("gpt2", "gpt2", {"model.layers=1", "optimizer.weight_decay=0.2"}),
              HasSubstr("B is wrong first at step 1, state after of embedding.token.weight"));
  EXPECT_THAT(Replay("llama", "llama", {"model.layers=1", "optimizer.beta2=0.99"}),
              HasSubstr("step 1, state after of optimizer.second_moment.embedding.token.weight"));
  EXPECT_THAT(Replay("llama", "llama", {"model.layers=1", "train.clip_norm=0.5"}),
              HasSubstr("step 1, state after of optimizer.first_moment.embedding.token.weight"));
}

TEST(RecordedTest, FaultsAreLocated) {
  const auto replay = [](const std::string& model, int number) {
    return Replay(model, model + "_" + std::to_string(number), {});
  };
  EXPECT_THAT(replay("gpt2", 0), HasSubstr("module: blocks.1.network.norm\n"));
  EXPECT_THAT(replay("llama", 1), HasSubstr("module: blocks.0.attention.projection\n"));
  EXPECT_THAT(replay("gpt2", 2), HasSubstr("module: blocks.1.attention.core\n"));
  EXPECT_THAT(replay("llama", 3), HasSubstr("module: blocks.1.attention.qkv\n"));
  EXPECT_THAT(replay("gpt2", 4), HasSubstr("module: blocks.0.network.norm\n"));
  EXPECT_THAT(replay("llama", 5), HasSubstr("module: blocks.1.network.down\n"));
}

}  // namespace
}  // namespace lockstep
