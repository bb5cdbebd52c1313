#include "tools/launch/kept_configs.h"

#include <string>

#include "core/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(KeptConfigsTest, AFileThatHasChangedOrIsGoneIsACopyOfWhatItWas) {
  const std::string folder = ::testing::TempDir() + "/kept";
  const std::string a = folder + "/a.toml", b = folder + "/b.toml", out = folder + "/out";
  RemoveTree(folder);
  ASSERT_TRUE(MakeDirectories(folder).ok());
  ASSERT_TRUE(WriteFileAtomically(a, "a = 1\n").ok());
  ASSERT_TRUE(WriteFileAtomically(b, "b = 1\n").ok());
  const auto kept = KeptConfigs::Read({a, b});
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_THAT(kept->PathsNow(out).value(), ElementsAre(a, b));
  ASSERT_TRUE(WriteFileAtomically(b, "b = 2\n").ok());
  EXPECT_THAT(kept->PathsNow(out).value(), ElementsAre(a, b));  // there is no run yet
  ASSERT_TRUE(MakeDirectories(out).ok());
  const std::string copy = out + "/config_at_start-2.toml";
  EXPECT_THAT(kept->PathsNow(out).value(), ElementsAre(a, copy));
  EXPECT_EQ(ReadFile(copy).value(), "b = 1\n");
  RemoveTree(a);
  EXPECT_THAT(kept->PathsNow(out).value(), ElementsAre(out + "/config_at_start-1.toml", copy));
  EXPECT_EQ(ReadFile(out + "/config_at_start-1.toml").value(), "a = 1\n");
  EXPECT_FALSE(KeptConfigs::Read({a}).ok());
}

TEST(KeptConfigsTest, ArgumentsNameOtherFiles) {
  EXPECT_THAT(WithConfigs({"--config", "a", "--set", "x=1", "--config=b"}, {"c", "d"}),
              ElementsAre("--config", "c", "--set", "x=1", "--config=d"));
  EXPECT_THAT(WithConfigs({"--out", "o"}, {}), ElementsAre("--out", "o"));
  EXPECT_THAT(WithConfigs({}, {}), IsEmpty());
}

}  // namespace
}  // namespace lockstep
