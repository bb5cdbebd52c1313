#include "core/base/mapped_file.h"

#include <string>
#include <utility>

#include "core/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::string Text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(MappedFileTest, ShowsTheContents) {
  const std::string path = testing::TempDir() + "/mapped_file_test";
  ASSERT_EQ(WriteFileAtomically(path, std::string("one\0two", 7)), absl::OkStatus());
  auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(Text(*file), std::string("one\0two", 7));
  // What takes its name does not change it, and moving keeps it.
  ASSERT_EQ(WriteFileAtomically(path, "another"), absl::OkStatus());
  MappedFile moved = *std::move(file);
  EXPECT_EQ(Text(moved), std::string("one\0two", 7));
  moved = *MappedFile::Open(path);
  EXPECT_EQ(Text(moved), "another");
}

TEST(MappedFileTest, AnEmptyFileHasNoBytes) {
  const std::string path = testing::TempDir() + "/mapped_file_test.empty";
  ASSERT_EQ(WriteFileAtomically(path, ""), absl::OkStatus());
  const auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(file->bytes().empty());
}

TEST(MappedFileTest, NamesWhatCannotBeRead) {
  const absl::Status missing = MappedFile::Open("/none/file").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("cannot read \"/none/file\""));
  EXPECT_THAT(std::string(MappedFile::Open(testing::TempDir()).status().message()),
              HasSubstr("it is a directory"));
  EXPECT_THAT(std::string(MappedFile::Open("/dev/null").status().message()),
              HasSubstr("it is a device"));
}

}  // namespace
}  // namespace lockstep
