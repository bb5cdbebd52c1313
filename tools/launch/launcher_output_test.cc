#include "tools/launch/launcher_output.h"

#include <string>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

const std::string kBorder = std::string(74, '-') + "\n";
const std::string kOwn =
    kBorder + "Primary job  terminated normally, but\n--- 1 process ---\n" + kBorder;

TEST(LauncherOutputTest, KeepsTheLaunchersOwnMessages) {
  LauncherOutput output;
  EXPECT_EQ(output.Take("step 1\n" + kOwn + "rank 0: no room\n" + kOwn),
            "step 1\nrank 0: no room\n");
  EXPECT_EQ(output.TakeOwn(), kOwn + kOwn);
  EXPECT_EQ(output.TakeOwn(), "");
}

TEST(LauncherOutputTest, IsTheSameByteByByte) {
  LauncherOutput output;
  std::string shown;
  for (const char next : "a\n" + kOwn + "-x\n\nb") shown += output.Take(std::string(1, next));
  EXPECT_EQ(shown, "a\n-x\n\nb");
  EXPECT_EQ(output.TakeOwn(), kOwn);
}

TEST(LauncherOutputTest, WaitsForNoEndOfALine) {
  LauncherOutput output;
  EXPECT_EQ(output.Take("step 1 of"), "step 1 of");
  EXPECT_EQ(output.Take(" 9\r----"), " 9\r----");
  EXPECT_EQ(output.Take("\n----"), "\n");
  EXPECT_EQ(output.Take("-\n"), "-----\n");
}

TEST(LauncherOutputTest, OtherLinesOfDashesAreShown) {
  LauncherOutput output;
  const std::string longer = std::string(75, '-') + "\n", shorter = std::string(73, '-') + "\n";
  EXPECT_EQ(output.Take(longer + shorter), longer + shorter);
  EXPECT_EQ(output.TakeOwn(), "");
}

TEST(LauncherOutputTest, AMessageThatIsCutShortIsKept) {
  LauncherOutput output;
  EXPECT_EQ(output.Take(kBorder + "There are not enough"), "");
  EXPECT_EQ(output.TakeOwn(), kBorder + "There are not enough");
  EXPECT_EQ(output.Take("rank 0\n"), "rank 0\n");
}

}  // namespace
}  // namespace lockstep
