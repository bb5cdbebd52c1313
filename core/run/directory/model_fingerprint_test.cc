#include "core/run/directory/model_fingerprint.h"

#include <cstdint>
#include <string>

#include "core/config/config_reader.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

// The fingerprint that a program gives a configuration whose model has the keys kind and width,
// and `added` where `has_added_key`.
std::string FingerprintOf(const std::string& toml, bool has_added_key) {
  absl::StatusOr<Config> config = Config::FromString(toml, "test");
  EXPECT_TRUE(config.ok()) << config.status();
  ConfigRecord record;
  config->RecordInto(&record);
  ConfigReader reader(config->Table("model"));
  std::string kind;
  int64_t width = 8, added = 3;
  reader.Require("kind", &kind);
  reader.Read("width", &width);
  if (has_added_key) reader.Read("added", &added);
  EXPECT_TRUE(reader.Finish().ok());
  return ModelFingerprint(*config, record);
}

constexpr char kModel[] = "[model]\nkind = \"toy\"\nwidth = 8\n";

// Files of earlier versions have fingerprints of all keys.
TEST(ModelFingerprintTest, FirstKeysEnterEvenAtTheirDefaults) {
  EXPECT_EQ(FingerprintOf(kModel, false), Config::FromString(kModel, "test")->Fingerprint());
  EXPECT_NE(FingerprintOf(kModel, false), FingerprintOf("[model]\nkind = \"toy\"\n", false));
}

TEST(ModelFingerprintTest, AnAddedKeyEntersOnlyWithAnotherValueThanItsDefault) {
  const std::string before = FingerprintOf(kModel, false);
  EXPECT_EQ(FingerprintOf(kModel, true), before);
  EXPECT_EQ(FingerprintOf(std::string(kModel) + "added = 3\n", true), before);
  EXPECT_NE(FingerprintOf(std::string(kModel) + "added = 4\n", true), before);
}

TEST(ModelFingerprintTest, LeavesOutWhatTrainingStartsFromAndHowAdaptersAreTrained) {
  const std::string adapters = "[lora]\nlayers = [\"*\"]\n";
  const std::string before = FingerprintOf(kModel + adapters, false);
  EXPECT_NE(before, FingerprintOf(kModel, false));
  EXPECT_EQ(FingerprintOf(kModel + adapters + "dropout = 0.5\nlearning_rate = 2.0\n", false),
            before);
  EXPECT_EQ(FingerprintOf(std::string(kModel) + "[train]\nsteps = 3\n", false),
            FingerprintOf(kModel, false));
}

}  // namespace
}  // namespace lockstep
