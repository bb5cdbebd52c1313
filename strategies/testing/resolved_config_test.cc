// The configuration that a run leaves is accepted again, says all, and means the same run.

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/file.h"
#include "core/config/config_reader.h"
#include "core/run/leg/training_run.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/mesh/mesh.h"
#include "strategies/presets.h"
#include "strategies/single/single.h"

namespace lockstep {
namespace {

constexpr char kWorkload[] = R"(name = "resolved"
[train]
steps = 3
[batch]
size = 8
[cut]
shards = 4
features = 2
[data]
kind = "markov"
vocabulary = 8
order = 1
successors = 2
context = 8
[schedule]
learning_rate = 0.01
)";

// Models and optimizers have keys of their own.
const std::vector<std::vector<std::string>> kVariants = {
    {"model={kind=\"transformer\", layers=2, heads=2, width=16}", "optimizer.kind=adamw"},
    {"model={kind=\"llama\", layers=2, heads=2, width=16, experts={count=2}}", "optimizer.kind=sgd",
     "schedule.kind=wsd"},
    {"model={kind=\"transformer\", layers=2, heads=2, width=16}", "optimizer.kind=adamw",
     "precision.compute=bf16", "lora.layers=[\"*\"]"},
};

class ResolvedConfigTest : public testing::TestWithParam<size_t> {};

TEST_P(ResolvedConfigTest, MeansTheSameRun) {
  const StrategyDefinition strategy = AllStrategies()[GetParam()];
  const std::string folder = testing::TempDir() + "/resolved_config";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  int accepted = 0;
  for (const std::vector<std::string>& variant : kVariants) {
    CommandLine given;
    given.configs = {folder + "/workload.toml"};
    given.assignments = variant;
    ASSERT_TRUE(WriteFileAtomically(given.configs[0], kWorkload).ok());
    const auto first = CheckRun(given, strategy, MakeModel);
    if (!first.ok()) continue;  // ep wants experts, lora adapters
    ++accepted;
    CommandLine again;
    again.configs = {folder + "/config.toml"};
    ASSERT_TRUE(WriteFileAtomically(again.configs[0], first->config.ToToml()).ok());
    ConfigRecord record;
    const auto second = CheckRun(again, strategy, MakeModel, {}, &record);
    ASSERT_TRUE(second.ok()) << strategy.name << ": " << second.status();
    EXPECT_EQ(second->config.ToToml(), first->config.ToToml());
    EXPECT_EQ(second->model_fingerprint, first->model_fingerprint);
    EXPECT_EQ(second->settings.cut.shards, first->settings.cut.shards);
    EXPECT_EQ(second->settings.threads, first->settings.threads);
    // No key is left to a default but those that may not stand beside others, and one that is asked
    // for where the strategy has no such table.
    std::vector<std::string> unsaid;
    for (const auto& [table, keys] : record) {
      for (const RecordedKey& key : keys) {
        if (key.source.empty()) unsaid.push_back(absl::StrCat(table, ".", key.name));
      }
    }
    EXPECT_THAT(unsaid, testing::IsSubsetOf({"train.epochs", "data_parallel.reshard",
                                             "tensor_parallel.sequence_parallel"}))
        << strategy.name;
  }
  EXPECT_GT(accepted, 0) << strategy.name;
}

// Each order of legs, and kinds of keys that a leg, the user or nobody gives.
TEST(ResolvedLegsTest, MeanTheSameRun) {
  const std::string folder = testing::TempDir() + "/resolved_legs";
  std::filesystem::create_directories(folder);
  const std::vector<std::vector<std::string>> lists_of_legs = {
      {"1: ddp dp=4", "1: fsdp dp=2 tp=2", "1: gpipe pp=2"},
      {"1: gpipe pp=2 dp=2", "1: single", "1: layerwise pp=2"},
      {"1: fsdp dp=2 data_parallel.unshard=step", "1: zero1 dp=4", "1: naive_ddp dp=2"},
      {"1: single", "1: fsdp_pipe pp=2 dp=2", "1: mesh dp=2 data_parallel.shard=optimizer"},
  };
  const std::vector<std::vector<std::string>> lengths = {
      {}, {"train.epochs=0.01", "mesh.cp=1"}, {"train.steps=2", "run.threads=3"}};
  for (const std::vector<std::string>& legs : lists_of_legs) {
    for (const std::vector<std::string>& length : lengths) {
      SCOPED_TRACE(absl::StrCat(absl::StrJoin(legs, "; "), " ", absl::StrJoin(length, " ")));
      CommandLine given;
      given.configs = {folder + "/workload.toml"};
      given.assignments = kVariants[0];
      given.assignments.insert(given.assignments.end(), length.begin(), length.end());
      given.assignments.push_back(
          absl::StrCat("train.legs=[\"", absl::StrJoin(legs, "\", \""), "\"]"));
      ASSERT_TRUE(WriteFileAtomically(given.configs[0], kWorkload).ok());
      const auto first = CheckWholeRun(given, MeshStrategy(), MakeModel, {}, LegStrategies());
      ASSERT_TRUE(first.ok()) << first.status();
      const std::string written = first->written_config().ToToml();
      EXPECT_EQ(written.find("[pipeline]"), std::string::npos) << written;
      EXPECT_NE(written.find("every = "), std::string::npos)
          << written;  // defaults of other tables
      CommandLine again;
      again.configs = {folder + "/config.toml"};
      ASSERT_TRUE(WriteFileAtomically(again.configs[0], written).ok());
      const auto second = CheckWholeRun(again, MeshStrategy(), MakeModel, {}, LegStrategies());
      ASSERT_TRUE(second.ok()) << second.status();
      EXPECT_EQ(second->written_config().ToToml(), written);
      const TrainingRun *ours = &*first, *theirs = &*second;
      for (; ours != nullptr && theirs != nullptr;
           ours = ours->next.get(), theirs = theirs->next.get()) {
        EXPECT_EQ(theirs->strategy_name, ours->strategy_name);
        EXPECT_EQ(theirs->end_step, ours->end_step);
        // The first leg alone has read the data.
        EXPECT_EQ(theirs->config.Without("data").ToToml(), ours->config.Without("data").ToToml());
        EXPECT_EQ(theirs->model_fingerprint, ours->model_fingerprint);
      }
      EXPECT_EQ(ours, theirs);  // as many legs
    }
  }
}

// A model with one key more than MakeModel knows.
absl::StatusOr<Model> MakeModelWithANewKey(const Config& config, const Dataset& dataset) {
  int64_t added = 3;
  ConfigReader(config.Table("model")).Read("added", &added);
  return MakeModel(config.Without("model.added"), dataset);
}

TEST(AddedKeyTest, MovesNoFingerprintOfAModelThatLeavesItAlone) {
  const std::string folder = testing::TempDir() + "/added_key";
  std::filesystem::create_directories(folder);
  CommandLine given;
  given.configs = {folder + "/workload.toml"};
  given.assignments = kVariants[0];
  ASSERT_TRUE(WriteFileAtomically(given.configs[0], kWorkload).ok());
  const StrategyDefinition strategy = SingleStrategy();
  const auto before = CheckRun(given, strategy, MakeModel);
  const auto after = CheckRun(given, strategy, MakeModelWithANewKey);
  ASSERT_TRUE(before.ok() && after.ok()) << before.status() << after.status();
  EXPECT_NE(before->config.ToToml(), after->config.ToToml());
  EXPECT_EQ(before->model_fingerprint, after->model_fingerprint);
  given.assignments.push_back("model.added=4");
  const auto changed = CheckRun(given, strategy, MakeModelWithANewKey);
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_NE(before->model_fingerprint, changed->model_fingerprint);
}

INSTANTIATE_TEST_SUITE_P(Strategies, ResolvedConfigTest,
                         testing::Range(size_t{0}, AllStrategies().size()),
                         [](const auto& of) { return AllStrategies()[of.param].name; });

}  // namespace
}  // namespace lockstep
