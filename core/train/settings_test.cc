#include "core/train/settings.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<Settings> Read(const std::string& batch, const std::string& rest = "") {
  const auto config = Config::FromString(
      "[train]\nsteps = 1\n[optimizer]\nkind = \"sgd\"\n[schedule]\nlearning_rate = 0.1\n" + rest +
          "[batch]\n" + batch,
      "a.toml");
  EXPECT_TRUE(config.ok()) << config.status();
  return ReadSettings(*config, "single", {});
}

std::vector<int64_t> MicroBatches(const std::string& batch) {
  const auto settings = Read(batch);
  EXPECT_TRUE(settings.ok()) << settings.status();
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < settings->batch.shards * settings->batch.micro_batches; ++i) {
    samples.push_back(settings->batch.samples_of(i));
  }
  EXPECT_EQ(settings->batch.largest_micro_batch(), samples.front());
  EXPECT_EQ(settings->batch.smallest_micro_batch(), samples.back());
  EXPECT_EQ(settings->validation.batch_size, samples.front());
  return samples;
}

TEST(BatchSettingsTest, MicroBatchesDifferByOneSampleAtMost) {
  EXPECT_THAT(MicroBatches("size = 12\nshards = 2\nmicro_batches = 3"),
              ElementsAre(2, 2, 2, 2, 2, 2));
  EXPECT_THAT(MicroBatches("size = 10\nshards = 2\nmicro_batches = 3"),
              ElementsAre(2, 2, 1, 2, 2, 1));
  EXPECT_THAT(MicroBatches("size = 11\nmicro_batches = 4"), ElementsAre(3, 3, 3, 2));
}

TEST(BatchSettingsTest, NoMicroBatchIsEmpty) {
  EXPECT_THAT(MicroBatches("size = 6\nshards = 2\nmicro_batches = 8"),
              ElementsAre(1, 1, 1, 1, 1, 1));
  EXPECT_THAT(MicroBatches("size = 1\nmicro_batches = 8"), ElementsAre(1));
}

TEST(BatchSettingsTest, ShardsHaveOneSize) {
  EXPECT_THAT(std::string(Read("size = 10\nshards = 3").status().message()),
              HasSubstr("batch.size is 10 samples, which do not divide into 3 shards; use a "
                        "multiple of 3"));
  EXPECT_FALSE(Read("size = 2\nshards = 3").ok());
}

// As a later layer of a configuration may say.
TEST(LoraSettingsTest, FalseTakesTheTableBack) {
  Config config =
      Config::FromString("[lora]\nlayers = [\"*\"]\nlearning_rate = 0.5\n", "a").value();
  Settings settings;
  ASSERT_TRUE(ReadLora(config, settings).ok());
  EXPECT_TRUE(settings.lora.has_value());
  ASSERT_TRUE(config.Set("lora=false").ok());
  Settings without;
  ASSERT_TRUE(ReadLora(config, without).ok());
  EXPECT_FALSE(without.lora.has_value());
  EXPECT_NE(without.schedule.peak, 0.5);
  ASSERT_TRUE(config.Set("lora=true").ok());
  EXPECT_THAT(std::string(ReadLora(config, without).message()),
              HasSubstr("lora is true, expected a table"));
}

TEST(BatchSettingsTest, ValidationMayHaveItsOwn) {
  EXPECT_EQ(
      Read("size = 10\nmicro_batches = 4", "[validation]\nbatch_size = 7\n")->validation.batch_size,
      7);
}

TEST(RunSettingsTest, InstructionsAreTheWidestOrThoseOfEveryProcessor) {
  EXPECT_EQ(Read("size = 1")->instructions, WidestInstructionSet());
  EXPECT_EQ(Read("size = 1", "[run]\ninstructions = \"widest\"\n")->instructions,
            WidestInstructionSet());
  EXPECT_EQ(Read("size = 1", "[run]\ninstructions = \"avx2\"\n")->instructions,
            InstructionSet::kAvx2);
  EXPECT_THAT(Read("size = 1", "[run]\ninstructions = \"sse\"\n").status().message(),
              HasSubstr("run.instructions"));
}

}  // namespace
}  // namespace lockstep
