#include "core/data/data_file.h"

#include <string>

#include "core/data/testing.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(DataFile, JoinsPaths) {
  EXPECT_EQ(DataPath("data", "a/b.txt"), "data/a/b.txt");
  EXPECT_EQ(DataPath("data/", "a/b.txt"), "data/a/b.txt");
  EXPECT_EQ(DataPath("", "a/b.txt"), "a/b.txt");
  EXPECT_EQ(DataPath("data", "/a/b.txt"), "/a/b.txt");
}

TEST(DataFile, ReadsBelowTheDirectory) {
  const TemporaryDirectory directory;
  directory.Write("folder/a.txt", "contents");
  const absl::StatusOr<std::string> read = ReadDataFile(directory.path(), "folder/a.txt", "Hint.");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, "contents");
}

TEST(DataFile, AMissingFileSaysWhatToDo) {
  const TemporaryDirectory directory;
  const absl::Status status =
      ReadDataFile(directory.path(), "a.txt", "It grows on trees.").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(std::string(status.message()),
            "cannot read \"" + directory.path() +
                "/a.txt\": No such file or directory. It grows on trees. The data directory is \"" +
                directory.path() +
                "\"; name another with --data DIR or in the variable LOCKSTEP_DATA.");
  EXPECT_EQ(HowToNameTheDirectory(""),
            "The data directory is not set; name another with --data DIR or in the variable "
            "LOCKSTEP_DATA.");
}

TEST(DataFile, OtherErrorsStayAsTheyAre) {
  const TemporaryDirectory directory;
  const absl::Status status = ReadDataFile(directory.path(), "", "It grows on trees.").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
}

}  // namespace
}  // namespace lockstep
