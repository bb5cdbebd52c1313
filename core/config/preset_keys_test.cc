#include "core/config/preset_keys.h"

#include <string>

#include "core/config/config_reader.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const PresetKeys& Keys() {
  static const auto& keys = *new PresetKeys{.defaults = "mesh = {pp = 2, dp = 2}",
                                            .fixed = {{"pipeline.schedule", "\"gpipe\"", "1f1b"}}};
  return keys;
}

Config Given(const std::string& text) { return Config::FromString(text, "a.toml").value(); }

std::string Applied(const std::string& given) {
  return WithPreset("mine", Keys(), Given(given)).value().ToToml();
}

std::string Problem(const std::string& given) {
  return std::string(WithPreset("mine", Keys(), Given(given)).status().message());
}

TEST(WithPresetTest, DefaultsGiveWayAndFixedKeysStay) {
  EXPECT_EQ(Applied(""), Given("mesh = {pp = 2, dp = 2}\npipeline.schedule = \"gpipe\"").ToToml());
  EXPECT_EQ(Applied("mesh = {dp = 4, tp = 3}"),
            Given("mesh = {pp = 2, dp = 4, tp = 3}\npipeline.schedule = \"gpipe\"").ToToml());
}

TEST(WithPresetTest, AnotherValueForAFixedKeyIsRefused) {
  EXPECT_EQ(Problem("\npipeline.schedule = \"layerwise\""),
            "a.toml:2: pipeline.schedule is \"layerwise\", but the strategy 'mine' has "
            "pipeline.schedule = \"gpipe\": leave the key out, or use 1f1b");
  EXPECT_EQ(Problem("pipeline.schedule = \"gpipe\""), "");  // says the same
}

TEST(WithPresetTest, EachRankHasOneShardWhereNobodySaysMore) {
  const auto dp = [](const std::string& given) {
    int size = 0;
    const Config config = WithPreset("mine", Keys(), Given(given)).value();
    ConfigReader reader(config.Table("mesh"));
    reader.Read("dp", &size);
    return size;
  };
  EXPECT_EQ(dp("cut.micro_batches = 3"), 2);
  EXPECT_EQ(dp("cut.shards = 8"), 2);
  EXPECT_EQ(dp("cut.shards = 3"), 3);
  EXPECT_EQ(dp("cut.shards = 6"), 6);  // of two ranks, each would sum three
  EXPECT_EQ(dp("cut.shards = 2\nmesh.replicas = 2"), 1);
  EXPECT_EQ(dp("cut.shards = 1"), 1);
  EXPECT_EQ(dp("cut.shards = 8\nmesh.dp = 2"), 2);
}

TEST(WithPresetTest, ReadersTellDefaultsFromWhatIsGiven) {
  const Config config = WithPreset("mine", Keys(), Given("mesh.dp = 2")).value();
  ConfigReader reader(config.Table("mesh"));
  EXPECT_TRUE(reader.IsGiven("dp"));
  EXPECT_FALSE(reader.IsGiven("pp"));
  EXPECT_TRUE(reader.Has("pp"));
}

TEST(MovedKeysTest, OldKeysNameTheNewOnes) {
  const auto problem = [](const std::string& given) {
    return std::string(CheckMovedKeys(Given(given)).message());
  };
  EXPECT_EQ(problem("batch.shards = 2"), "a.toml:1: batch.shards is called cut.shards now");
  EXPECT_THAT(problem("batch.shard_groups = 2"),
              AllOf(HasSubstr("batch.shard_groups is gone"), HasSubstr("leave it out")));
  EXPECT_EQ(problem("[gpipe]\nschedule = \"1f1b\"\ncheckpoint = \"never\""),
            "a.toml:2: gpipe.schedule is called pipeline.schedule now\n"
            "a.toml:3: gpipe.checkpoint is called recompute.micro_batches now");
  EXPECT_EQ(problem("fsdp.reshard_after_forward = false"),
            "a.toml:1: fsdp.reshard_after_forward is called data_parallel.reshard now");
  EXPECT_EQ(problem("tp.sequence_parallel = true"),
            "a.toml:1: tp.sequence_parallel is called tensor_parallel.sequence_parallel now");
  EXPECT_EQ(problem("batch.size = 2\ntp.tea = 3"), "");
}

}  // namespace
}  // namespace lockstep
