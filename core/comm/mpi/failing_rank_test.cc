// Ranks that die, and what the others say of it.

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/file.h"
#include "core/base/subprocess.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::mpi {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class FailingRankTest : public testing::Test {
 protected:
  FailingRankTest() : post_mortem_(testing::TempDir() + "/post_mortem") {
    std::filesystem::remove_all(post_mortem_);
  }

  // Three ranks, of which rank 1 fails; returns what all have written to the standard error.
  std::string Run(const std::string& how, double timeout,
                  const std::vector<std::string>& mpirun_arguments = {}, double mpi_timeout = 60) {
    std::vector<std::string> arguments = {"build_defs/mpi_test.sh", "3"};
    arguments.insert(arguments.end(), mpirun_arguments.begin(), mpirun_arguments.end());
    arguments.insert(arguments.end(), {"core/comm/mpi/failing_rank", how, absl::StrCat(timeout),
                                       post_mortem_, absl::StrCat(mpi_timeout)});
    const auto result = RunProcess({.arguments = arguments});
    EXPECT_TRUE(result.ok()) << result.status();
    exit_code_ = result->exit_code;
    return result->err;
  }

  // What rank `rank` left behind.
  std::string PostMortem(int rank) {
    const auto text = ReadFile(absl::StrCat(post_mortem_, "/rank", rank, ".txt"));
    EXPECT_TRUE(text.ok()) << text.status();
    return text.value_or("");
  }

  // The ranks that told the user, each time one has.
  static std::vector<std::string> Tellers(const std::string& error) {
    std::vector<std::string> tellers;
    for (const auto line : absl::StrSplit(error, '\n')) {
      if (absl::StartsWith(line, "told by ")) tellers.emplace_back(line);
    }
    return tellers;
  }

  const std::string post_mortem_;
  int exit_code_ = 0;  // of mpirun
};

// mpirun sees that a process has died, and tells the others to stop; they say what they were at.
TEST_F(FailingRankTest, SurvivorsOfAKilledRankSayWhatTheyWaitedFor) {
  for (const char* how : {"kill", "exit"}) {
    SCOPED_TRACE(how);
    const std::string error = Run(how, 60);
    EXPECT_NE(exit_code_, 0);
    for (const int survivor : {0, 2}) {
      EXPECT_THAT(error, ContainsRegex(absl::StrCat("survivor ", survivor,
                                                    ": rank 1 died or does not answer; the "
                                                    "launcher has then told rank [02] to stop")));
      EXPECT_THAT(PostMortem(survivor),
                  AllOf(HasSubstr("rank 1: does not answer; last heard of: all_reduce #2"),
                        HasSubstr("all_reduce #3 of 'world' [0, 1, 2]")));
    }
    EXPECT_THAT(error, HasSubstr("rank 1: does not answer; last heard of: all_reduce #2"));
    EXPECT_THAT(Tellers(error), SizeIs(1));
  }
}

// A rank that is stopped (SIGSTOP, a frozen container) and woken up when it is too late: one of
// the others tells, the one whose time was over first, and neither the third nor the stopped one
// adds to it.
TEST_F(FailingRankTest, OneRankTellsOfAStoppedOne) {
  for (const char* how : {"stop", "amid a call: stop"}) {
    SCOPED_TRACE(how);
    const std::string error = Run(how, 1);
    EXPECT_THAT(error, ContainsRegex("survivor 0: no answer within 1.0 s: "));
    EXPECT_THAT(Tellers(error), ElementsAre(AnyOf("told by rank 0", "told by rank 2"))) << error;
  }
}

// Here it has the time to see that the others have given up on it.
TEST_F(FailingRankTest, AStoppedRankThatWakesUpAddsNothing) {
  const std::string wake_up =
      absl::StrCat("if [ $OMPI_COMM_WORLD_RANK = 1 ]; then (until [ -e ", post_mortem_,
                   "/rank0.txt ]; do sleep 0.1; done; kill -CONT $$) & fi; exec \"$@\"");
  const std::string error = Run("stop", 1, {"--enable-recovery", "/bin/sh", "-c", wake_up, "sh"});
  EXPECT_THAT(error, ContainsRegex("survivor 1: no answer within 1.0 s: rank 1 did not come to "
                                   "all_reduce #3 of 'world'"));
  EXPECT_THAT(Tellers(error), ElementsAre(AnyOf("told by rank 0", "told by rank 2"))) << error;
}

// Its own thread comes too late to hear of it: launchers leave a rank one second.
TEST_F(FailingRankTest, ARankThatIsToldToStopWhileItComputesEndsAsALostOne) {
  const std::string error = Run("is told to stop, and computes", 60);
  EXPECT_THAT(error, HasSubstr("rank 1 was told to stop (SIGTERM)"));
  EXPECT_EQ(exit_code_, 69);
}

TEST_F(FailingRankTest, AKilledRankAmidACall) {
  const std::string error = Run("amid a call: kill", 60);
  for (const int survivor : {0, 2}) {
    EXPECT_THAT(error, HasSubstr(absl::StrCat("survivor ", survivor, ": ")));
    EXPECT_THAT(PostMortem(survivor), HasSubstr("rank 1: does not answer; last heard of: "));
  }
}

// Where nobody tells the survivors, the timeout does.
TEST_F(FailingRankTest, TheTimeoutNamesARankThatDied) {
  const std::string error = Run("kill", 1, {"--enable-recovery"});
  for (const int survivor : {0, 2}) {
    EXPECT_THAT(error, ContainsRegex(absl::StrCat("survivor ", survivor,
                                                  ": no answer within 1.0 s: rank 1 did not come "
                                                  "to all_reduce #3 of 'world'")));
  }
}

TEST_F(FailingRankTest, TheTimeoutNamesARankThatStaysAway) {
  const std::string error = Run("stay away", 1);
  for (const int survivor : {0, 2}) {
    EXPECT_THAT(error, ContainsRegex(absl::StrCat(
                           "survivor ", survivor,
                           ": no answer within 1.0 s: rank 1 did not come to all_reduce #3 of "
                           "'world' .*Last calls: .*rank 1: all_reduce #2")));
    EXPECT_THAT(PostMortem(survivor), HasSubstr("rank 1: all_reduce #2"));
  }
  EXPECT_THAT(Tellers(error), SizeIs(1));
}

// Inside MPI's own start nobody else would end the wait.
TEST_F(FailingRankTest, TheTimeoutEndsAStartThatARankDoesNotComeTo) {
  const std::string error =
      Run("stay away", 60,
          {"/bin/sh", "-c", "[ $OMPI_COMM_WORLD_RANK != 1 ] || kill -STOP $$; exec \"$@\"", "sh"},
          /*mpi_timeout=*/2);
  EXPECT_EQ(exit_code_, 69);
  EXPECT_THAT(error, HasSubstr("rank 0: MPI has not started within 2s: a process of this run is "
                               "stopped"));
  EXPECT_THAT(error, Not(HasSubstr("rank 2: ")));
}

// The others have left, and make no call that would end.
TEST_F(FailingRankTest, TheTimeoutNamesARankThatStopsBehindTheLastCall) {
  const std::string error = Run("behind the last call: stop", 1);
  EXPECT_NE(exit_code_, 0);
  EXPECT_THAT(error, HasSubstr("no answer within 1.0 s: rank 1 has not left, and is stopped or "
                               "cannot be reached"));
  EXPECT_THAT(Tellers(error), ElementsAre(AnyOf("told by rank 0", "told by rank 2"))) << error;
}

// As rank 0 does, which writes what a run leaves while the others wait for it.
TEST_F(FailingRankTest, ARankMayWorkForLongerThanTheTimeoutBehindTheLastCall) {
  const std::string error = Run("behind the last call: compute", 1);
  EXPECT_EQ(exit_code_, 0) << error;
  EXPECT_THAT(Tellers(error), SizeIs(0)) << error;
}

// MPI's own stop waits for all processes.
TEST_F(FailingRankTest, TheTimeoutEndsAStopThatARankDoesNotComeTo) {
  const std::string error = Run("at the end: stop", 60, {}, /*mpi_timeout=*/2);
  EXPECT_EQ(exit_code_, 69);
  EXPECT_THAT(error, HasSubstr("rank 0: has done its work, but MPI has not stopped within 2s: a "
                               "process of this run is stopped"));
  EXPECT_THAT(error, Not(AnyOf(HasSubstr("rank 1: "), HasSubstr("rank 2: "))));
}

// What has arrived is not what was called for: nobody may take it for data.
TEST_F(FailingRankTest, AReceiveThatMpiCannotEndFailsTheCall) {
  const std::string error = Run("sends too much", 10);
  EXPECT_NE(exit_code_, 0);
  EXPECT_THAT(error, ContainsRegex("survivor 0: MPI cannot receive: .*ERR_TRUNCATE.*rank 0: "
                                   "all_reduce #0"));
  EXPECT_THAT(Tellers(error), ElementsAre("told by rank 0")) << error;
}

TEST_F(FailingRankTest, AnExceptionReachesAll) {
  for (const char* how : {"throw", "amid a call: throw"}) {
    SCOPED_TRACE(how);
    const std::string error = Run(how, 60);
    EXPECT_NE(exit_code_, 0);
    for (const int rank : {0, 1, 2}) {
      EXPECT_THAT(error, HasSubstr(absl::StrCat("survivor ", rank,
                                                ": rank 1: uncaught exception: no convergence")));
    }
    EXPECT_THAT(Tellers(error), ElementsAre("told by rank 1"));
  }
}

}  // namespace
}  // namespace lockstep::mpi
