#include "core/report/earlier_attempt.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/report/metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr char kConfig[] = "name = \"a\"\n";

const std::vector<NamedRows> kRows = {{.name = "losses.csv", .format = &kLossesCsv},
                                      {.name = "metrics.jsonl", .format = &kMetricsJsonl}};

class EarlierAttemptTest : public testing::Test {
 protected:
  EarlierAttemptTest()
      : out_(absl::StrCat(testing::TempDir(), "/earlier_attempt_test.",
                          testing::UnitTest::GetInstance()->current_test_info()->name())) {
    RemoveTree(out_);
    EXPECT_TRUE(MakeDirectories(out_).ok());
    Write("losses.csv", "step,loss\n0,0.5\n1,0.25\n2,0.125\n3,0.06");
    Write("metrics.jsonl", "{\"step\":0}\n{\"step\":1}\n");
    Write("config.toml", kConfig);
  }

  void Write(const std::string& name, const std::string& contents) const {
    ASSERT_EQ(WriteFileAtomically(absl::StrCat(out_, "/", name), contents), absl::OkStatus());
  }

  void Keep(int64_t first_step, const std::string& config = kConfig) const {
    ASSERT_EQ(KeepEarlierAttempt(out_, config, kRows, first_step), absl::OkStatus());
  }

  std::vector<std::string> Folders() const {
    return ListFolder(out_ + "/earlier").value_or(std::vector<std::string>());
  }

  // Contents by name.
  std::map<std::string, std::string> Attempt(int n) const {
    std::map<std::string, std::string> files;
    const std::string folder = absl::StrCat(out_, "/earlier/", n, "/");
    for (const std::string& name : ListFolder(folder).value_or(std::vector<std::string>())) {
      files[name] = ReadFile(folder + name).value();
    }
    return files;
  }

  const std::string out_;
};

TEST_F(EarlierAttemptTest, RowsToCutAreKeptUnderTheirHeader) {
  Keep(1);
  EXPECT_THAT(Attempt(1), ElementsAre(Pair("losses.csv", "step,loss\n1,0.25\n2,0.125\n"),
                                      Pair("metrics.jsonl", "{\"step\":1}\n")));
  EXPECT_TRUE(ReadLossCurve(out_ + "/earlier/1/losses.csv").ok());
  Write("losses.csv", "step,loss\n0,0.5\n1,7\n");
  Keep(1);
  EXPECT_THAT(Attempt(2), ElementsAre(Pair("losses.csv", "step,loss\n1,7\n"),
                                      Pair("metrics.jsonl", "{\"step\":1}\n")));
  EXPECT_THAT(Folders(), ElementsAre("1", "2"));
}

TEST_F(EarlierAttemptTest, ARunThatStartsOverKeepsAllRows) {
  Keep(0);
  EXPECT_THAT(Attempt(1), ElementsAre(Pair("losses.csv", "step,loss\n0,0.5\n1,0.25\n2,0.125\n"),
                                      Pair("metrics.jsonl", "{\"step\":0}\n{\"step\":1}\n")));
}

TEST_F(EarlierAttemptTest, WhereNothingIsOverwrittenNoFolderIsMade) {
  Keep(3);
  EXPECT_FALSE(PathExists(out_ + "/earlier"));
}

TEST_F(EarlierAttemptTest, AnotherConfigurationAndASummaryAreKept) {
  Write("summary.json", "{}\n");
  Keep(3, "name = \"b\"\n");
  EXPECT_THAT(Attempt(1), ElementsAre(Pair("config.toml", kConfig), Pair("summary.json", "{}\n")));
}

TEST_F(EarlierAttemptTest, WhatAKilledProgramHasKeptIsNotKeptTwice) {
  Keep(1);
  Keep(1);                                    // killed before it cut anything
  Write("losses.csv", "step,loss\n0,0.5\n");  // killed between the two files
  Keep(1);
  EXPECT_THAT(Folders(), ElementsAre("1"));
}

TEST_F(EarlierAttemptTest, AHalfWrittenFolderIsRemoved) {
  ASSERT_TRUE(MakeDirectories(out_ + "/earlier/draft.tmp").ok());
  Write("earlier/draft.tmp/config.toml", "half");
  Keep(3);
  EXPECT_THAT(Folders(), IsEmpty());
  Keep(1);
  EXPECT_THAT(Folders(), ElementsAre("1"));
}

}  // namespace
}  // namespace lockstep
