#include "tools/launch/testing/launch_fixture.h"

#include <unistd.h>  // usleep

#include <algorithm>
#include <filesystem>
#include <iterator>  // std::ssize

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/report/restart_log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/launch/worker_group.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kTables[] = R"([train]
steps = 300
[cut]
shards = 4
[checkpoint]
every = 25
)";

}  // namespace

LaunchTest::LaunchTest() : LaunchedRunTest("strategies/single/main", LaunchedGpt(2, kTables)) {
  const ProcessResult single = Run({}, "single");
  EXPECT_TRUE(single.ok()) << single.err;
}

std::string LaunchTest::out() const { return fs::weakly_canonical(path("out")).string(); }

std::vector<std::string> LaunchTest::Words(const std::vector<std::string>& flags,
                                           const std::vector<std::string>& arguments) const {
  std::vector<std::string> all = {"tools/launch/launch", "--strategy", "ddp"};
  all.insert(all.end(), flags.begin(), flags.end());
  if (std::find(flags.begin(), flags.end(), "--launcher") == flags.end()) {
    all.insert(all.end(), {"--launcher", "build_defs/mpi_test.sh {ranks}"});
  }
  all.insert(all.end(), {"--", "--config", path("workload.toml"), "--out", out()});
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

Subprocess LaunchTest::Start(const std::vector<std::string>& flags,
                             const std::vector<std::string>& arguments) const {
  return Subprocess::Start({.arguments = Words(flags, arguments)}).value();
}

Subprocess LaunchTest::StartFromShell(const std::string& commands,
                                      const std::vector<std::string>& flags,
                                      const std::vector<std::string>& arguments) const {
  std::vector<std::string> all = {"/bin/sh", "-c", commands + "; exec \"$@\"", "sh"};
  const std::vector<std::string> words = Words(flags, arguments);
  all.insert(all.end(), words.begin(), words.end());
  return Subprocess::Start({.arguments = all}).value();
}

std::string LaunchTest::Script(const std::string& name, const std::string& text) const {
  const std::string script = path(name);
  EXPECT_EQ(WriteFileAtomically(script, "#!/bin/sh\n" + text), absl::OkStatus());
  fs::permissions(script, fs::perms::owner_all);
  return script;
}

std::string LaunchTest::WaitingLauncher() const {
  return Script("waiting.sh", "build_defs/mpi_test.sh \"$@\"\nsleep 600\n");
}

int64_t LaunchTest::Steps() const {
  const std::string text = ReadFile(out() + "/losses.csv").value_or("");
  return std::max<int64_t>(0, std::count(text.begin(), text.end(), '\n') - 1);
}

void LaunchTest::AwaitSteps(int64_t steps) const {
  const int64_t start = NowNanos();
  while (Steps() < steps && SecondsSince(start) < kLongestSeconds) usleep(2000);
  ASSERT_GE(Steps(), steps);
}

void LaunchTest::AwaitRestarts(int64_t restarts) const {
  const int64_t start = NowNanos();
  const auto have_gone_on = [&] {
    const auto rows = ReadRestarts(out());
    return rows.ok() && std::ssize(*rows) >= restarts && rows->back().went_on();
  };
  while (!have_gone_on() && SecondsSince(start) < kLongestSeconds) usleep(2000);
  ASSERT_TRUE(have_gone_on());
}

void LaunchTest::AwaitFile(const std::string& path) {
  const int64_t start = NowNanos();
  while (!PathExists(path) && SecondsSince(start) < kLongestSeconds) usleep(2000);
  ASSERT_TRUE(PathExists(path)) << path;
}

void LaunchTest::AwaitText(const std::string& path, const std::string& text) {
  const int64_t start = NowNanos();
  const auto contents = [&path] { return ReadFile(path).value_or(""); };
  while (contents().find(text) == std::string::npos && SecondsSince(start) < kLongestSeconds) {
    usleep(2000);
  }
  ASSERT_THAT(contents(), HasSubstr(text));
}

void LaunchTest::Kill(LaunchedProcess::Kind kind, int number) const {
  for (const LaunchedProcess& process : ProcessesOf(out())) {
    if (process.kind != kind) continue;
    kill(process.pid, number);
    return;
  }
  ADD_FAILURE() << "no such process";
}

void LaunchTest::AwaitNoProcess() const {
  const int64_t start = NowNanos();
  while (!ProcessesOf(out()).empty() && SecondsSince(start) < kLongestSeconds) usleep(2000);
  EXPECT_THAT(ProcessesOf(out()), IsEmpty());
}

void LaunchTest::ExpectTheRunOfSingle(const ProcessResult& result) const {
  ASSERT_TRUE(result.ok()) << result.Describe() << result.err;
  EXPECT_EQ(File("out/losses.csv"), File("single/losses.csv"));
  EXPECT_EQ(Summary("out")["parameter_hash"], Summary("single")["parameter_hash"]);
  AwaitNoProcess();
  EXPECT_FALSE(PathExists(GroupFolder::PathOf(out())));
  EXPECT_FALSE(PathExists(out() + ".1"));
  for (const auto& entry : fs::recursive_directory_iterator(out())) {
    EXPECT_THAT(entry.path().string(), Not(HasSubstr(".tmp")));
  }
}

}  // namespace lockstep
