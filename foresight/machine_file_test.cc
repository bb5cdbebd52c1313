#include "foresight/machine_file.h"

#include <cstdlib>  // setenv

#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(MachineFileTest, FollowsTheEnvironment) {
  for (const char* name : {"LOCKSTEP_MACHINE", "XDG_CONFIG_HOME", "HOME"}) unsetenv(name);
  EXPECT_EQ(MachineFile().status().code(), absl::StatusCode::kNotFound);
  setenv("HOME", "/home/someone", 1);
  EXPECT_EQ(MachineFile().value(), "/home/someone/.config/lockstep/machine.toml");
  // The specification has relative paths ignored.
  setenv("XDG_CONFIG_HOME", "settings", 1);
  EXPECT_EQ(MachineFile().value(), "/home/someone/.config/lockstep/machine.toml");
  setenv("XDG_CONFIG_HOME", "/settings", 1);
  EXPECT_EQ(MachineFile().value(), "/settings/lockstep/machine.toml");
  setenv("LOCKSTEP_MACHINE", "other.toml", 1);
  EXPECT_EQ(MachineFile().value(), "other.toml");
}

}  // namespace
}  // namespace lockstep
