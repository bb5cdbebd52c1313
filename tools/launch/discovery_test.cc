#include "tools/launch/discovery.h"

#include <signal.h>
#include <unistd.h>  // usleep

#include <filesystem>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kLongestSeconds = 60;  // for what a test waits for

class DiscoveryTest : public ::testing::Test {
 protected:
  DiscoveryTest() : folder_(::testing::TempDir() + "/discovery_test") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

  std::string Script(const std::string& text) const {
    const std::string script = folder_ + "/hosts.sh";
    EXPECT_EQ(WriteFileAtomically(script, "#!/bin/sh\n" + text), absl::OkStatus());
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    return script;
  }

  static absl::StatusOr<Slots> Await(Discovery& discovery) {
    const int64_t start = NowNanos();
    while (SecondsSince(start) < kLongestSeconds) {
      if (auto slots = discovery.Poll()) return *slots;
      usleep(1000);
    }
    return absl::DeadlineExceededError("the test has waited for too long");
  }
  absl::StatusOr<Slots> Found(const std::string& text) const {
    Discovery discovery(Script(text), kLongestSeconds);
    return Await(discovery);
  }
  std::string Error(const std::string& text) const {
    return std::string(Found(text).status().message());
  }

  // Whether the process whose number the script has left in the file "pid" runs. What nobody has
  // waited for yet does not.
  bool Runs() const {
    const std::string pid(absl::StripAsciiWhitespace(ReadFile(folder_ + "/pid").value_or("")));
    EXPECT_NE(pid, "");
    const absl::StatusOr<std::string> stat = ReadFile(absl::StrCat("/proc/", pid, "/stat"));
    return stat.ok() && !absl::StrContains(*stat, ") Z ");
  }
  void AwaitEnd() const {
    const int64_t start = NowNanos();
    while (Runs() && SecondsSince(start) < kLongestSeconds) usleep(1000);
    EXPECT_FALSE(Runs());
  }

  const std::string folder_;
};

TEST_F(DiscoveryTest, FindsWhatTheScriptPrints) {
  const Slots slots = Found("echo a:4; echo; echo ' b:2'; echo c:0\n").value();
  EXPECT_EQ(slots.ranks, 6);
  EXPECT_EQ(slots.hosts, "a:4,b:2");
  EXPECT_EQ(Found("").value().ranks, 0);
  // More than a pipe holds.
  EXPECT_EQ(Found("i=0; while [ $i -lt 10000 ]; do echo host-number-$i:1; i=$((i + 1)); done\n")
                .value()
                .ranks,
            10000);
}

TEST_F(DiscoveryTest, ErrorsNameTheScript) {
  EXPECT_THAT(Error("echo a:4; exit 3\n"), HasSubstr("hosts.sh: exit code 3"));
  EXPECT_THAT(Error("kill -9 $$\n"), HasSubstr("hosts.sh: killed by signal 9 (Killed)"));
  EXPECT_THAT(Error("echo a\n"), AllOf(HasSubstr("hosts.sh: "), HasSubstr("\"a\" is no host")));
  Discovery missing(folder_ + "/none.sh", kLongestSeconds);
  EXPECT_THAT(std::string(Await(missing).status().message()),
              AllOf(HasSubstr("none.sh: cannot start it"), HasSubstr("No such file")));
}

// Its output stays open for as long as what it has left in the background.
TEST_F(DiscoveryTest, DoesNotWaitForWhatTheScriptLeaves) {
  EXPECT_EQ(Found(absl::StrCat("sleep 600 & echo $! >", folder_, "/pid; echo a:2\n"))->ranks, 2);
  int pid = 0;
  ASSERT_TRUE(absl::SimpleAtoi(ReadFile(folder_ + "/pid").value_or(""), &pid));
  EXPECT_EQ(kill(pid, SIGKILL), 0);
}

TEST_F(DiscoveryTest, AScriptThatPrintsWithoutEndIsKilled) {
  EXPECT_THAT(Error("exec yes localhost:1\n"), HasSubstr("hosts.sh: prints more than 1.0 MiB"));
}

TEST_F(DiscoveryTest, AScriptThatHangsIsKilledWithWhatItHasStarted) {
  const std::string hanging = absl::StrCat("sleep 600 & echo $! >", folder_, "/pid; wait\n");
  Discovery discovery(Script(hanging), /*limit_seconds=*/3);
  const absl::StatusOr<Slots> slots = Await(discovery);
  EXPECT_TRUE(absl::IsDeadlineExceeded(slots.status()));
  EXPECT_THAT(std::string(slots.status().message()), HasSubstr("(--longest_discovery)"));
  AwaitEnd();
}

TEST_F(DiscoveryTest, AScriptThatNobodyWaitsForAnyMoreIsKilled) {
  {
    Discovery discovery(Script(absl::StrCat("echo $$ >", folder_, "/pid; exec sleep 600\n")),
                        kLongestSeconds);
    const int64_t start = NowNanos();
    while (ReadFile(folder_ + "/pid").value_or("").empty() &&
           SecondsSince(start) < kLongestSeconds) {
      usleep(1000);
    }
    EXPECT_FALSE(discovery.Poll());
  }
  AwaitEnd();
}

}  // namespace
}  // namespace lockstep
