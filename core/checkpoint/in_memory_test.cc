#include "core/checkpoint/in_memory.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>  // symlink

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>

#include "core/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class InMemoryTest : public ::testing::Test {
 protected:
  InMemoryTest() {
    RemoveTree(run_);
    EXPECT_EQ(MakeDirectories(run_ + "/checkpoints"), absl::OkStatus());
  }
  ~InMemoryTest() override { RemoveInMemoryFolder(run_); }

  const std::string run_ = ::testing::TempDir() + "/in_memory_test_run";
};

TEST_F(InMemoryTest, EveryPathOfADirectoryHasTheSameFolder) {
  const std::string other = run_ + "_by_another_name";
  RemoveTree(other);
  ASSERT_EQ(symlink(run_.c_str(), other.c_str()), 0);
  EXPECT_EQ(InMemoryFolder(other), InMemoryFolder(run_ + "/../in_memory_test_run"));
  EXPECT_NE(InMemoryFolder(run_), InMemoryFolder(run_ + "/checkpoints"));
  EXPECT_EQ(InMemoryFolder(run_ + "/nothing"), "");
}

TEST_F(InMemoryTest, NobodyElseReadsIt) {
  ASSERT_EQ(MakeInMemoryFolder(run_, 1), absl::OkStatus());
  ASSERT_EQ(MakeInMemoryFolder(run_, 1), absl::OkStatus());  // a resumed run's
  struct stat found;
  ASSERT_EQ(stat(InMemoryFolder(run_).c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777u, 0700u);
  RemoveInMemoryFolder(run_);
  EXPECT_FALSE(PathExists(InMemoryFolder(run_)));
}

TEST_F(InMemoryTest, ALackOfRoomIsSeenBeforeAnythingIsWritten) {
  const absl::Status status = MakeInMemoryFolder(run_, std::numeric_limits<int64_t>::max());
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("there is room for"));
}

// As large as these bytes, of holes, which take no memory.
void MakeCopy(const std::string& path, int64_t bytes) {
  ASSERT_EQ(WriteFileAtomically(path, ""), absl::OkStatus());
  std::filesystem::resize_file(path, static_cast<uintmax_t>(bytes));
}

// Or a run that goes on would need room for the copy that it goes on from once more.
TEST_F(InMemoryTest, WhatTheFolderHoldsIsOneOfTwoCopies) {
  ASSERT_EQ(MakeInMemoryFolder(run_, 1), absl::OkStatus());
  const std::string folder = InMemoryFolder(run_);
  struct statvfs room;
  ASSERT_EQ(statvfs(folder.c_str(), &room), 0);
  const auto most = static_cast<int64_t>(room.f_bavail * room.f_frsize) / 4 * 3;
  EXPECT_TRUE(absl::IsResourceExhausted(MakeRoomForCopies(run_, most)));
  MakeCopy(CheckpointPath(folder, 17, CheckpointFiles::kWhole), most);
  EXPECT_EQ(MakeRoomForCopies(run_, most), absl::OkStatus());
}

// What the folder holds stays until the next copy is whole, however small that is.
TEST_F(InMemoryTest, TheNextCopyHasRoomBesideWhatTheFolderHolds) {
  ASSERT_EQ(MakeInMemoryFolder(run_, 1), absl::OkStatus());
  constexpr int64_t kMuch = int64_t{1} << 43;  // more than a machine's memory
  MakeCopy(CheckpointPath(InMemoryFolder(run_), 17, CheckpointFiles::kWhole), kMuch);
  EXPECT_TRUE(absl::IsResourceExhausted(MakeRoomForCopies(run_, kMuch / 4)));
  EXPECT_EQ(MakeRoomForCopies(run_, 1), absl::OkStatus());
}

TEST_F(InMemoryTest, WhatAKillHasLeftTakesNoRoom) {
  ASSERT_EQ(MakeInMemoryFolder(run_, 1), absl::OkStatus());
  const std::string folder = InMemoryFolder(run_);
  const std::string newest = CheckpointPath(folder, 18, CheckpointFiles::kWhole);
  MakeCopy(CheckpointPath(folder, 17, CheckpointFiles::kWhole), 100);
  MakeCopy(newest, 100);
  MakeCopy(DraftPath(CheckpointPath(folder, 19, CheckpointFiles::kWhole)), 100);
  ASSERT_EQ(MakeRoomForCopies(run_, 100), absl::OkStatus());
  EXPECT_THAT(ListFolder(folder).value(), SizeIs(2));  // the other is the path of the run
  EXPECT_TRUE(PathExists(newest));
}

// The folder of `run_`, as it is found without its path.
FoundInMemoryFolder Find(const std::string& path) {
  const auto all = ListInMemoryFolders();
  EXPECT_TRUE(all.ok()) << all.status();
  for (const FoundInMemoryFolder& found : all.value()) {
    if (found.path == path) return found;
  }
  return {};
}

TEST_F(InMemoryTest, FoldersAreFoundWithoutTheirRuns) {
  ASSERT_EQ(MakeInMemoryFolder(run_, 1), absl::OkStatus());
  const std::string folder = InMemoryFolder(run_);
  FoundInMemoryFolder found = Find(folder);
  EXPECT_EQ(std::filesystem::path(found.run_directory), std::filesystem::canonical(run_));
  EXPECT_TRUE(found.has_run_directory);
  EXPECT_EQ(found.steps, -1);
  const int64_t bytes = found.bytes;
  const std::string copy = CheckpointPath(folder, 17, CheckpointFiles::kSharded);
  ASSERT_EQ(MakeDirectories(copy), absl::OkStatus());
  ASSERT_EQ(WriteFileAtomically(copy + "/shard", std::string(1000, 'x')), absl::OkStatus());
  found = Find(folder);
  EXPECT_EQ(found.steps, 17);
  EXPECT_EQ(found.bytes, bytes + 1000);
  // Nothing of the run's own path is left to find it by.
  RemoveTree(run_);
  EXPECT_EQ(InMemoryFolder(run_), "");
  EXPECT_FALSE(Find(folder).has_run_directory);
  // A folder of an earlier version.
  RemoveTree(folder + "/run_directory");
  EXPECT_EQ(Find(folder).steps, 17);
  EXPECT_EQ(Find(folder).run_directory, "");
  EXPECT_FALSE(Find(folder).has_run_directory);
  RemoveTree(folder);
  EXPECT_EQ(Find(folder).path, "");
}

TEST_F(InMemoryTest, TheNewestOfMemoryAndDiskComesLast) {
  ASSERT_EQ(MakeInMemoryFolder(run_, 1), absl::OkStatus());
  const auto make = [](const std::string& folder, int64_t step) {
    EXPECT_EQ(MakeDirectories(CheckpointPath(folder, step, CheckpointFiles::kSharded)),
              absl::OkStatus());
  };
  make(run_ + "/checkpoints", 10);
  make(run_ + "/checkpoints", 20);
  make(InMemoryFolder(run_), 17);
  EXPECT_EQ(ListRunCheckpoints(run_)->back().step, 20);
  EXPECT_FALSE(IsInMemory(ListRunCheckpoints(run_)->back().path));
  make(InMemoryFolder(run_), 20);
  EXPECT_TRUE(IsInMemory(ListRunCheckpoints(run_)->back().path));
  EXPECT_EQ(ListRunCheckpoints(run_)->size(), 4u);
}

TEST_F(InMemoryTest, ACopyIsTheNewestWhereTheDiskHasNoneOfItsStep) {
  EXPECT_FALSE(IsNewestInMemory(run_));
  ASSERT_EQ(MakeInMemoryFolder(run_, 1), absl::OkStatus());
  EXPECT_FALSE(IsNewestInMemory(run_));
  const auto save = [](const std::string& folder, int64_t step) {
    MakeCopy(CheckpointPath(folder, step, CheckpointFiles::kWhole), 1);
  };
  save(InMemoryFolder(run_), 17);
  EXPECT_TRUE(IsNewestInMemory(run_));
  save(run_ + "/checkpoints", 16);
  EXPECT_TRUE(IsNewestInMemory(run_));
  save(run_ + "/checkpoints", 17);
  EXPECT_FALSE(IsNewestInMemory(run_));
  save(InMemoryFolder(run_), 18);
  EXPECT_TRUE(IsNewestInMemory(run_));
  save(run_ + "/checkpoints", 20);
  EXPECT_FALSE(IsNewestInMemory(run_));
}

}  // namespace
}  // namespace lockstep
