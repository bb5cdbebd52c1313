#include "core/report/restart_log.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RestartLogTest : public ::testing::Test {
 protected:
  RestartLogTest() : out_(::testing::TempDir() + "/restart_log_test") {
    std::filesystem::remove_all(out_);
    std::filesystem::create_directories(out_);
  }

  void Append(const std::string& text) const {
    std::ofstream(out_ + "/" + kRestartsFile, std::ios::app) << text;
  }

  const std::string out_;
  const Restart killed_ = {.time = "2026-11-24T12:00:00Z",
                           .cause = "rank 2: killed by signal 9 (Killed)",
                           .steps = 40,
                           .state = "memory",
                           .formation = "ddp dp=4",
                           .seconds = 1.5};
  const Restart again_ = {.time = "2026-11-24T12:00:09Z",
                          .cause = "the launcher has ended",
                          .steps = 0,
                          .formation = "ddp dp=2"};
};

TEST_F(RestartLogTest, ReadsWhatWasAppended) {
  EXPECT_THAT(ReadRestarts(out_).value(), IsEmpty());
  ASSERT_EQ(BeginRestarts(out_, "ddp dp=4"), absl::OkStatus());
  EXPECT_THAT(ReadRestarts(out_).value(), IsEmpty());
  ASSERT_EQ(AppendRestart(out_, killed_), absl::OkStatus());
  ASSERT_EQ(BeginRestarts(out_, "ddp dp=2"), absl::OkStatus());  // keeps what is there
  ASSERT_EQ(AppendRestart(out_, again_), absl::OkStatus());
  EXPECT_THAT(ReadRestarts(out_).value(), ElementsAre(killed_, again_));
}

TEST_F(RestartLogTest, ARowIsReplacedByWhatBecameKnownSince) {
  ASSERT_EQ(BeginRestarts(out_, "ddp dp=4"), absl::OkStatus());
  ASSERT_EQ(AppendRestart(out_, killed_), absl::OkStatus());
  ASSERT_EQ(AppendRestart(out_, again_), absl::OkStatus());
  Restart later = again_;
  later.seconds = 2;
  ASSERT_EQ(ReplaceRestart(out_, again_, later), absl::OkStatus());
  EXPECT_THAT(ReadRestarts(out_).value(), ElementsAre(killed_, later));
  // No other row is lost.
  ASSERT_EQ(ReplaceRestart(out_, killed_, again_), absl::OkStatus());
  EXPECT_THAT(ReadRestarts(out_).value(), ElementsAre(killed_, later, again_));
}

TEST_F(RestartLogTest, ACauseIsTheFirstLineOfAMessageAndBounded) {
  EXPECT_EQ(RestartNow("rank 1 is lost\nit called").cause, "rank 1 is lost");
  EXPECT_EQ(CauseOf(""), "");
  EXPECT_EQ(CauseOf(std::string(500, 'a')), std::string(500, 'a'));
  EXPECT_EQ(CauseOf(std::string(501, 'a')), std::string(497, 'a') + "...");
  std::string umlauts = "a";  // of two bytes each: the cut would be amid one
  while (umlauts.size() < 600) umlauts += "\u00fc";
  EXPECT_EQ(CauseOf(umlauts), umlauts.substr(0, 497) + "...");
  EXPECT_EQ(CauseOf("a" + umlauts), "a" + umlauts.substr(0, 495) + "...");
}

TEST_F(RestartLogTest, ACauseMayHaveBytesThatAreNoText) {
  ASSERT_EQ(BeginRestarts(out_, "ddp dp=4"), absl::OkStatus());
  Restart odd = killed_;
  odd.cause = "cannot read \"\xff\"";
  ASSERT_EQ(AppendRestart(out_, odd), absl::OkStatus());
  EXPECT_EQ(ReadRestarts(out_).value().at(0).cause, "cannot read \"\uFFFD\"");
}

TEST_F(RestartLogTest, ARowThatAKillHasCutShortHarmsNoOther) {
  ASSERT_EQ(BeginRestarts(out_, "ddp dp=4"), absl::OkStatus());
  ASSERT_EQ(AppendRestart(out_, killed_), absl::OkStatus());
  Append("{\"time\": \"2026-");
  EXPECT_THAT(ReadRestarts(out_).value(), ElementsAre(killed_));
  ASSERT_EQ(AppendRestart(out_, again_), absl::OkStatus());
  EXPECT_THAT(ReadRestarts(out_).value(), ElementsAre(killed_, again_));
}

TEST_F(RestartLogTest, SaysWhatARunWentOnFromLast) {
  EXPECT_TRUE(absl::IsNotFound(ReadResumed(out_).status()));
  ASSERT_EQ(WriteResumed(out_, {.steps = 40, .state = "memory"}), absl::OkStatus());
  ASSERT_EQ(WriteResumed(out_, {.steps = 25, .state = "disk"}), absl::OkStatus());
  EXPECT_EQ(ReadResumed(out_).value(), (ResumedFrom{.steps = 25, .state = "disk"}));
  for (const char* text :
       {"", "[]", "{\"steps\": 25}", "{\"steps\": \"25\", \"state\": \"disk\"}"}) {
    ASSERT_EQ(WriteFileAtomically(out_ + "/" + kResumedFile, text), absl::OkStatus());
    EXPECT_TRUE(absl::IsInvalidArgument(ReadResumed(out_).status())) << text;
  }
}

TEST_F(RestartLogTest, RefusesOtherRows) {
  Append("{\"time\": 3}\n");
  EXPECT_THAT(std::string(ReadRestarts(out_).status().message()),
              HasSubstr("is no row of a restart"));
}

// A flipped bit in a row that was whole is no row that a kill has cut short.
TEST_F(RestartLogTest, ADamagedRowIsNamed) {
  ASSERT_EQ(BeginRestarts(out_, "ddp dp=4"), absl::OkStatus());
  ASSERT_EQ(AppendRestart(out_, killed_), absl::OkStatus());
  ASSERT_EQ(AppendRestart(out_, again_), absl::OkStatus());
  const std::string path = out_ + "/" + kRestartsFile;
  const std::string good = ReadFile(path).value();
  for (const size_t begin : {good.find("{\"time"), good.rfind("{\"time")}) {
    std::string bytes = good;
    bytes[begin] = 'z';  // no JSON
    ASSERT_EQ(WriteFileAtomically(path, bytes), absl::OkStatus());
    const int line = begin == good.rfind("{\"time") ? 3 : 2;
    EXPECT_THAT(std::string(ReadRestarts(out_).status().message()),
                AllOf(HasSubstr(absl::StrCat(path, ":", line, ": \"z\"time\"")),
                      HasSubstr("the file was changed or is damaged")));
  }
}

TEST(RestartTest, NowIsInUtc) {
  const Restart restart = RestartNow("rank 1 is lost");
  EXPECT_THAT(restart.time, ::testing::MatchesRegex("20..-..-..T..:..:..Z"));
  EXPECT_EQ(restart.cause, "rank 1 is lost");
}

TEST_F(RestartLogTest, TheTableHasTheMedianOfThoseThatWentOn) {
  Restart slow = killed_;
  slow.seconds = 9;
  Restart fast = killed_;
  fast.seconds = 1;
  const std::string table = RestartsTable({slow, killed_, fast, again_});
  EXPECT_THAT(table, HasSubstr("rank 2: killed by signal 9 (Killed)"));
  EXPECT_THAT(table, HasSubstr("4 restarts; the next step came after 1.5 s (median)"));
}

}  // namespace
}  // namespace lockstep
