#include "core/report/event_file.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/report/testing/event_scalars.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class EventFileTest : public ::testing::Test {
 protected:
  // The contents of the only file of the folder.
  std::string Contents() const {
    const auto names = ListFolder(folder_);
    EXPECT_TRUE(names.ok()) << names.status();
    EXPECT_THAT(*names, ElementsAre(StartsWith("events.out.tfevents.")));
    return ReadFile(folder_ + "/" + names->front()).value();
  }

  // A folder that is not there yet.
  const std::string folder_ = ::testing::TempDir() + "/" +
                              ::testing::UnitTest::GetInstance()->current_test_info()->name() +
                              "/events";
};

// RFC 3720, section B.4, and the check value of the catalogue of parametrised CRCs.
TEST_F(EventFileTest, TheChecksumIsCastagnolis) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

// Bytes written by hand after the definition of the messages; 9 bytes of time come first.
TEST_F(EventFileTest, RecordsAreEventsOfTensorBoard) {
  auto file = EventFile::Make(folder_, 0);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->Append(300, {{"loss", 1.5}, {"rate", -2.0}}).ok());
  ASSERT_TRUE(file->Sync().ok());
  const std::vector<std::string> records = EventRecords(Contents());
  ASSERT_EQ(records.size(), 2u);
  for (const std::string& record : records) EXPECT_EQ(record[0], 0x09);  // field 1, 64 bits
  EXPECT_EQ(records[0].substr(9),
            "\x1a\x0d"
            "brain.Event:2");
  const std::string loss = std::string("\x0a\x04loss\x15\x00\x00\xc0\x3f", 11);
  const std::string rate = std::string("\x0a\x04rate\x15\x00\x00\x00\xc0", 11);
  EXPECT_EQ(records[1].substr(9),
            "\x10\xac\x02"
            "\x2a\x1a"
            "\x0a\x0b" +
                loss + "\x0a\x0b" + rate);
}

TEST_F(EventFileTest, AResumedRunForgetsWhatWasBehindIt) {
  auto file = EventFile::Make(folder_, 5);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->Append(5, {{"loss", std::numeric_limits<double>::infinity()}}).ok());
  const std::vector<std::string> records = EventRecords(Contents());
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[1].substr(9), "\x10\x05\x3a\x02\x08\x01");  // step 5: session started
  EXPECT_EQ(records[2].substr(records[2].size() - 4), std::string("\x00\x00\x80\x7f", 4));
}

TEST_F(EventFileTest, TensorBoardReadsWhatWasWritten) {
  auto file = EventFile::Make(folder_, 0);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->Append(0, {{"loss", 1.5}, {"rate", -2.0}}).ok());
  ASSERT_TRUE(file->Append(300, {{"loss", 0.1f}}).ok());
  EXPECT_THAT(ReadEventScalars(folder_),
              ElementsAre(EventScalar{"loss", 0, 1.5}, EventScalar{"loss", 300, 0.1f},
                          EventScalar{"rate", 0, -2.0}));
}

TEST_F(EventFileTest, AFolderThatCannotBeMadeIsNamed) {
  ASSERT_TRUE(MakeDirectories(folder_.substr(0, folder_.rfind('/'))).ok());
  ASSERT_TRUE(WriteFileAtomically(folder_, "a file").ok());
  EXPECT_THAT(std::string(EventFile::Make(folder_, 0).status().message()), HasSubstr("events"));
}

}  // namespace
}  // namespace lockstep
