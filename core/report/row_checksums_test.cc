#include "core/report/row_checksums.h"

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/report/metrics.h"
#include "core/report/row_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class RowChecksumsTest : public testing::Test {
 protected:
  RowChecksumsTest() {
    RemoveTree(out_);
    EXPECT_TRUE(MakeDirectories(out_).ok());
  }

  std::string Path(const char* name) const { return absl::StrCat(out_, "/", name); }

  void Write(const char* name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomically(Path(name), text).ok());
  }

  // losses.csv and metrics.jsonl with the rows of so many steps.
  void WriteRows(int steps) {
    std::string losses = "step,loss\n", metrics;
    for (int step = 0; step < steps; ++step) {
      absl::StrAppend(&losses, step, ",1.25\n");
      absl::StrAppend(&metrics, "{\"step\":", step, "}\n");
    }
    Write("losses.csv", losses);
    Write("metrics.jsonl", metrics);
  }

  std::string Error(int64_t steps) const {
    return std::string(RowChecksums::Check(out_, files_, steps).message());
  }

  const std::string out_ = testing::TempDir() + "/row_checksums";
  const std::vector<NamedRows> files_ = {{.name = "losses.csv", .format = &kLossesCsv},
                                         {.name = "metrics.jsonl", .format = &kMetricsJsonl}};
};

TEST_F(RowChecksumsTest, AFlippedDigitIsNamedWithItsFileAndSteps) {
  RowChecksums checksums(out_, files_, /*first_step=*/0);
  WriteRows(3);
  ASSERT_TRUE(checksums.Add(2).ok());  // the third step has been trained meanwhile
  WriteRows(6);
  ASSERT_TRUE(checksums.Add(5).ok());
  EXPECT_EQ(Error(5), "");
  EXPECT_EQ(Error(1), "");  // none was saved so early
  Write("losses.csv", "step,loss\n0,1.25\n1,1.25\n2,1.25\n3,1.24\n4,1.25\n5,1.25\n");
  EXPECT_THAT(Error(5), AllOf(HasSubstr("losses.csv: the rows of the steps 2 to 4 are not those"),
                              HasSubstr("the checkpoint of 5 steps")));
  EXPECT_EQ(Error(2), "");  // the row is trained again
  Write("losses.csv", "step,loss\n0,1.35\n1,1.25\n2,1.25\n3,1.25\n4,1.25\n5,1.25\n");
  EXPECT_THAT(Error(5), HasSubstr("losses.csv: the rows of the steps 0 to 1 are not those"));
}

// Whichever bit of it is flipped, no other file is blamed for it.
TEST_F(RowChecksumsTest, DamageOfTheChecksumsIsNamed) {
  WriteRows(4);
  RowChecksums checksums(out_, files_, /*first_step=*/0);
  ASSERT_TRUE(checksums.Add(2).ok());
  ASSERT_TRUE(checksums.Add(4).ok());
  const std::string good = ReadFile(Path(kRowChecksumsFile)).value();
  const size_t second_row = good.find('\n') + 1;
  int seen = 0;
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string flipped = good;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
    std::ofstream(Path(kRowChecksumsFile)) << flipped;  // without waiting for the disk
    const absl::Status status = RowChecksums::Check(out_, files_, 4);
    if (status.ok()) continue;
    ++seen;
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    // The line end of the first row makes one row of both.
    const int line = bit / 8 < second_row ? 1 : 2;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat(Path(kRowChecksumsFile), ":", line,
                                       ": the row is not what was written")))
        << bit;
  }
  // What goes unseen: "row", without which a row is one of an earlier version; the last line end,
  // without which the last row is incomplete; and quotation marks in place of none.
  EXPECT_GT(seen, static_cast<int>(8 * (good.size() - 12)));
  // Where the checksums are sound, damage of the other files is seen as before.
  Write(kRowChecksumsFile, good);
  Write("losses.csv", "step,loss\n0,1.25\n1,1.25\n2,1.25\n3,1.24\n");
  EXPECT_THAT(Error(4), HasSubstr("losses.csv: the rows of the steps 2 to 3 are not those"));
}

TEST_F(RowChecksumsTest, ListsInListsEndInAMessage) {
  WriteRows(2);
  const std::string deep(200'000, '['), end(200'000, ']');
  Write(kRowChecksumsFile, absl::StrCat("{\"step\": 1, \"a\": ", deep, end, "}\n"));
  EXPECT_THAT(Error(2), HasSubstr(":1: the row is not what was written"));
}

// Earlier versions wrote rows without a checksum of their own.
TEST_F(RowChecksumsTest, RowsOfEarlierVersionsAreRead) {
  WriteRows(4);
  RowChecksums checksums(out_, files_, /*first_step=*/0);
  ASSERT_TRUE(checksums.Add(4).ok());
  std::string row = ReadFile(Path(kRowChecksumsFile)).value();
  const size_t own = row.find(",\"row\":");
  ASSERT_NE(own, std::string::npos);
  Write(kRowChecksumsFile, row.substr(0, own) + "}\n");
  EXPECT_EQ(Error(4), "");
  Write("losses.csv", "step,loss\n0,1.25\n1,1.25\n2,1.25\n3,1.24\n");
  EXPECT_THAT(Error(4), HasSubstr("losses.csv: the rows of the steps 0 to 3 are not those"));
}

// From an older checkpoint, after which other rows follow.
TEST_F(RowChecksumsTest, ALaterAttemptHasItsOwnChecksums) {
  WriteRows(4);
  RowChecksums first(out_, files_, /*first_step=*/0);
  ASSERT_TRUE(first.Add(2).ok());
  ASSERT_TRUE(first.Add(4).ok());
  Write("metrics.jsonl",
        "{\"step\":0}\n{\"step\":1}\n{\"step\":2,\"a\":1}\n{\"step\":3}\n{\"step\":4}\n");
  EXPECT_THAT(Error(4), HasSubstr("metrics.jsonl: the rows of the steps 2 to 3"));
  RowChecksums second(out_, files_, /*first_step=*/2);
  ASSERT_TRUE(second.Add(4).ok());
  EXPECT_EQ(Error(4), "");
}

// It goes on from before the checkpoint of four steps, and is lost before it has saved that anew.
TEST_F(RowChecksumsTest, ALaterAttemptIsNotHeldToTheRowsThatItCuts) {
  WriteRows(4);
  RowChecksums first(out_, files_, /*first_step=*/0);
  ASSERT_TRUE(first.Add(2).ok());
  ASSERT_TRUE(first.Add(4).ok());
  RowChecksums second(out_, files_, /*first_step=*/2);
  ASSERT_TRUE(second.Cut().ok());
  EXPECT_EQ(Error(2), "");
  // Killed before it has cut the other files: the rows that are to be trained again pass.
  EXPECT_EQ(Error(4), "");
  Write("losses.csv", "step,loss\n0,1.25\n1,1.25\n2,1.5\n3,1.5\n");
  EXPECT_EQ(Error(4), "");
  Write("losses.csv", "step,loss\n0,1.25\n1,1.24\n2,1.5\n3,1.5\n");
  EXPECT_THAT(Error(4), HasSubstr("losses.csv: the rows of the steps 0 to 1 are not those"));
}

TEST_F(RowChecksumsTest, ARunWithoutACheckpointHasNoFile) {
  EXPECT_TRUE(RowChecksums(out_, files_, /*first_step=*/0).Cut().ok());
  EXPECT_FALSE(PathExists(Path(kRowChecksumsFile)));
}

// As programs that read a run hold its files to them.
TEST_F(RowChecksumsTest, AReaderChecksAFileByItsPath) {
  const auto error = [this](const char* name) {
    return std::string(RowChecksums::CheckBeside(Path(name)).message());
  };
  WriteRows(6);
  EXPECT_EQ(error("losses.csv"), "");  // there are no checksums
  RowChecksums checksums(out_, files_, /*first_step=*/0);
  ASSERT_TRUE(checksums.Add(2).ok());
  ASSERT_TRUE(checksums.Add(5).ok());
  EXPECT_EQ(error("losses.csv"), "");
  EXPECT_EQ(error("metrics.jsonl"), "");
  EXPECT_EQ(error("other.csv"), "");
  // Behind the newest checksum, as in a run that is being written.
  Write("losses.csv", "step,loss\n0,1.25\n1,1.25\n2,1.25\n3,1.25\n4,1.25\n5,1.24\n6,1.2");
  EXPECT_EQ(error("losses.csv"), "");
  Write("losses.csv", "step,loss\n0,1.25\n1,1.25\n2,1.25\n3,1.25\n4,1.24\n5,1.25\n");
  EXPECT_THAT(error("losses.csv"),
              HasSubstr("/losses.csv: the rows of the steps 2 to 4 are not those"));
  EXPECT_EQ(error("metrics.jsonl"), "");
  // A copy of the file alone.
  const std::string alone = out_ + "/alone";
  ASSERT_TRUE(MakeDirectories(alone).ok());
  ASSERT_TRUE(
      WriteFileAtomically(alone + "/losses.csv", ReadFile(Path("losses.csv")).value()).ok());
  EXPECT_EQ(RowChecksums::CheckBeside(alone + "/losses.csv"), absl::OkStatus());
}

TEST_F(RowChecksumsTest, WhatIsNotThereIsNotCompared) {
  WriteRows(4);
  EXPECT_EQ(Error(4), "");  // of a run before there were checksums
  RowChecksums checksums(out_, files_, /*first_step=*/0);
  ASSERT_TRUE(checksums.Add(4).ok());
  RemoveTree(Path("metrics.jsonl"));
  EXPECT_EQ(Error(4), "");
  // A killed program may leave half a row.
  const std::string rows = ReadFile(Path(kRowChecksumsFile)).value();
  Write(kRowChecksumsFile, rows + "{\"step\":7,\"los");
  EXPECT_EQ(Error(8), "");
}

}  // namespace
}  // namespace lockstep
