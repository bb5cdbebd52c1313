#include "tools/launch/host_folder.h"

#include <fcntl.h>     // O_RDWR
#include <stdlib.h>    // setenv
#include <sys/file.h>  // flock

#include <filesystem>
#include <optional>
#include <string>

#include "core/base/file.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class HostFolderTest : public testing::Test {
 protected:
  HostFolderTest() : path_(testing::TempDir() + "/host_folder_test/of_group") {
    fs::remove_all(fs::path(path_).parent_path());
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_SERVER_TMPDIR"}) unsetenv(name);
  }
  ~HostFolderTest() override { unsetenv("PMIX_SERVER_TMPDIR"); }

  // The path of a file that it makes in the folder.
  std::string MakeFile(const std::string& name) const {
    const std::string file = path_ + "/" + name;
    fs::create_directories(fs::path(file).parent_path());
    EXPECT_EQ(WriteFileAtomically(file, "left"), absl::OkStatus());
    return file;
  }
  HostFolder Enter() const { return HostFolder::Enter(path_).value(); }

  const std::string path_;
};

TEST_F(HostFolderTest, TheFirstWorkerRemovesWhatAnEarlierStartHasLeft) {
  const std::string segment = MakeFile("vader_segment.host.0.1.0"), note = MakeFile("ended-3"),
                    session = MakeFile("ompi.host.0/pid.1/contact.txt");
  HostFolder first = Enter();
  for (const std::string& file : {segment, note, session}) EXPECT_FALSE(PathExists(file)) << file;
  EXPECT_TRUE(IsDirectory(path_));
}

TEST_F(HostFolderTest, LaterWorkersRemoveNothingAndTheLastOneAll) {
  HostFolder first = Enter();
  const std::string segment = MakeFile("vader_segment.host.0.2.0");
  HostFolder second = Enter();
  first.Leave();
  HostFolder third = Enter();
  second.Leave();
  EXPECT_TRUE(PathExists(segment));
  third.Leave();
  EXPECT_FALSE(PathExists(path_));
}

TEST_F(HostFolderTest, AKilledWorkerLeavesItsFilesToTheNextOne) {
  std::optional<HostFolder> killed = Enter();
  const std::string segment = MakeFile("vader_segment.host.0.2.0");
  killed.reset();  // without Leave
  EXPECT_TRUE(PathExists(segment));
  HostFolder next = Enter();
  EXPECT_FALSE(PathExists(segment));
}

TEST_F(HostFolderTest, WhatTheDaemonOfThisStartHasMadeStays) {
  const std::string earlier = MakeFile("ompi.host.0/pid.1/contact.txt"),
                    contact = MakeFile("ompi.host.0/pid.2/contact.txt"), note = MakeFile("ended-0");
  setenv("OMPI_COMM_WORLD_RANK", "0", /*overwrite=*/1);
  // It may not say where its folder is.
  Enter().Leave();
  EXPECT_FALSE(PathExists(note));
  EXPECT_TRUE(PathExists(earlier));
  EXPECT_TRUE(PathExists(contact));
  setenv("PMIX_SERVER_TMPDIR", fs::path(contact).parent_path().c_str(), /*overwrite=*/1);
  Enter().Leave();
  EXPECT_FALSE(PathExists(earlier));
  EXPECT_TRUE(PathExists(contact));
}

TEST_F(HostFolderTest, TheFolderOfALauncherOnThisHostIsLeftToIt) {
  const std::string note = MakeFile("ended-0");
  const FileDescriptor lock = OpenRegularFile(MakeFile(kLauncherLock), O_RDWR).value();
  ASSERT_EQ(flock(lock.get(), LOCK_EX), 0);
  Enter().Leave();
  EXPECT_TRUE(PathExists(note));
  // One that was killed no longer holds its lock.
  ASSERT_EQ(flock(lock.get(), LOCK_UN), 0);
  Enter().Leave();
  EXPECT_FALSE(PathExists(note));
}

// In a folder that everybody may write, somebody else may have made it.
TEST_F(HostFolderTest, ALinkIsNotFollowed) {
  const std::string mine = MakeFile("mine/thesis.tex");
  fs::create_directory_symlink(path_ + "/mine", path_ + "/link");
  HostFolder::Enter(path_ + "/link").value().Leave();
  EXPECT_TRUE(PathExists(mine));
}

}  // namespace
}  // namespace lockstep
