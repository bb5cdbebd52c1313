#include "core/run/directory/run_directory.h"

#include <fcntl.h>   // O_RDWR
#include <unistd.h>  // getpid

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "core/base/file.h"
#include "core/report/restart_log.h"
#include "core/run/directory/run_lock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Use = RunDirectory::Use;

class RunDirectoryTest : public ::testing::Test {
 protected:
  RunDirectoryTest() : out_(::testing::TempDir() + "/run_directory_test/out") {
    fs::remove_all(fs::path(out_).parent_path());
    fs::create_directories(fs::path(out_).parent_path());
  }

  void Write(const std::string& name, const std::string& contents) const {
    const fs::path path = fs::path(out_) / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << contents;
  }

  // A run that has ended, as a program leaves it.
  void LeaveRun() const {
    const auto directory = RunDirectory::Claim(out_, Use::kNew);
    ASSERT_TRUE(directory.ok()) << directory.status();
    ASSERT_EQ((*directory)->Begin(), absl::OkStatus());
    Write("losses.csv", "step,loss\n0,1\n");
    Write("checkpoints/step-00000001.safetensors", "");
  }

  // What is in the folder above: paths, and the contents of files.
  std::map<std::string, std::string> Snapshot() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(out_).parent_path())) {
      files[entry.path().string()] = entry.is_regular_file() ? *ReadFile(entry.path()) : "";
    }
    return files;
  }

  // The message of a directory that must not be claimed, and is left as it was.
  std::string Refused(Use use) const {
    const auto before = Snapshot();
    const auto directory = RunDirectory::Claim(out_, use);
    EXPECT_FALSE(directory.ok());
    if (PathExists(out_)) LeaveErrorInNewDirectory(out_, absl::NotFoundError("another error"));
    EXPECT_EQ(Snapshot(), before);
    return std::string(directory.status().message());
  }

  const std::string out_;
};

TEST_F(RunDirectoryTest, ClaimingChangesNothing) {
  const auto before = Snapshot();
  ASSERT_TRUE(RunDirectory::Claim(out_, Use::kNew).ok());
  EXPECT_EQ(Snapshot(), before);
  LeaveRun();
  const auto run = Snapshot();
  ASSERT_TRUE(RunDirectory::Claim(out_, Use::kNew).ok());
  ASSERT_TRUE(RunDirectory::Claim(out_, Use::kResume).ok());
  EXPECT_EQ(Snapshot(), run);
}

TEST_F(RunDirectoryTest, ADirectoryInUseIsRefusedAndItsHolderNamed) {
  const auto first = RunDirectory::Claim(out_, Use::kNew);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ((*first)->Begin(), absl::OkStatus());
  Write("losses.csv", "step,loss\n");
  for (const Use use : {Use::kNew, Use::kResume}) {
    EXPECT_THAT(Refused(use), AllOf(HasSubstr("another program is using this run directory (host "),
                                    HasSubstr("process " + std::to_string(getpid())),
                                    HasSubstr("use another --out")));
  }
  EXPECT_FALSE(fs::exists(out_ + ".1"));
}

// As after the host has died, whose lock the file server still keeps.
TEST_F(RunDirectoryTest, TheHolderOnAnotherHostIsNamedWhileItHasTheLock) {
  const std::string path = out_ + "/" + kRunLockFile;
  EXPECT_EQ(HolderElsewhere(path), "");
  {
    const auto here = RunDirectory::Claim(out_, Use::kNew).value();
    ASSERT_EQ(here->Begin(), absl::OkStatus());
    EXPECT_EQ(HolderElsewhere(path), "");
  }
  Write(kRunLockFile, "host elsewhere, process 7\n");
  EXPECT_EQ(HolderElsewhere(path), "");
  {
    const FileDescriptor file = OpenRegularFile(path, O_RDWR).value();
    ASSERT_EQ(LockRun(path, file), absl::OkStatus());
    EXPECT_EQ(HolderElsewhere(path), "host elsewhere, process 7");
    EXPECT_THAT(Refused(Use::kNew), HasSubstr(out_ + ": another program is using this run directory"
                                                     " (host elsewhere, process 7)"));
  }
  EXPECT_EQ(HolderElsewhere(path), "");
}

// Both have claimed what was not there; one of them begins.
TEST_F(RunDirectoryTest, OfTwoThatStartTogetherOneBegins) {
  const auto first = RunDirectory::Claim(out_, Use::kNew);
  const auto second = RunDirectory::Claim(out_, Use::kNew);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ((*first)->Begin(), absl::OkStatus());
  EXPECT_THAT(std::string((*second)->Begin().message()), HasSubstr("another program is using"));
}

// The run of the one that has begun looks like one that may be set aside.
TEST_F(RunDirectoryTest, ARunThatHasBegunMeanwhileIsNotSetAside) {
  const auto second = RunDirectory::Claim(out_, Use::kNew).value();
  {
    const auto first = RunDirectory::Claim(out_, Use::kNew).value();
    ASSERT_EQ(first->Begin(), absl::OkStatus());
    Write("losses.csv", "step,loss\n0,1\n");
    Write("metrics.jsonl", "");
    Write("config.toml", "");
    EXPECT_THAT(std::string(second->Begin().message()), HasSubstr("another program is using"));
  }
  EXPECT_THAT(std::string(second->Begin().message()),
              HasSubstr("another program has begun a run here at this moment"));
  EXPECT_FALSE(fs::exists(out_ + ".1"));
}

TEST_F(RunDirectoryTest, KnowsThatItWasRemoved) {
  const auto directory = RunDirectory::Claim(out_, Use::kNew).value();
  EXPECT_FALSE(directory->is_there());
  ASSERT_EQ(directory->Begin(), absl::OkStatus());
  EXPECT_TRUE(directory->is_there());
  // A rank on a host that does not see the disk knows no better.
  const auto elsewhere = RunDirectory::OfOtherProcess(out_ + ".elsewhere");
  elsewhere->Agreed();
  EXPECT_TRUE(elsewhere->is_there());
  const auto beside = RunDirectory::OfOtherProcess(out_);
  beside->Agreed();
  fs::remove_all(out_);
  EXPECT_FALSE(directory->is_there());
  EXPECT_FALSE(beside->is_there());
}

TEST_F(RunDirectoryTest, WhatFailsOnceItWasRemovedFailsBecauseOfThat) {
  const auto directory = RunDirectory::Claim(out_, Use::kNew).value();
  const absl::Status missing = absl::NotFoundError("no such file");
  const absl::Status lost = absl::DataLossError("wrong bits");
  EXPECT_EQ(directory->Explain(missing), missing);  // it has not begun
  ASSERT_EQ(directory->Begin(), absl::OkStatus());
  EXPECT_EQ(directory->Explain(missing), missing);
  fs::remove_all(out_);
  EXPECT_EQ(directory->Explain(absl::OkStatus()), absl::OkStatus());
  const absl::Status removed = directory->Explain(missing);
  EXPECT_TRUE(absl::IsFailedPrecondition(removed));
  EXPECT_THAT(std::string(removed.message()),
              AllOf(HasSubstr("\"" + out_ + "\" was removed while the run wrote to it"),
                    Not(HasSubstr("no such file"))));
  EXPECT_EQ(directory->Explain(removed), removed);
  const absl::Status both = directory->Explain(lost);
  EXPECT_TRUE(absl::IsFailedPrecondition(both));
  EXPECT_THAT(std::string(both.message()),
              AllOf(HasSubstr("was removed while"), HasSubstr("what failed: wrong bits")));
}

TEST_F(RunDirectoryTest, AnEarlierRunIsSetAsideWithItsMark) {
  LeaveRun();
  LeaveRun();
  LeaveRun();
  for (const char* aside : {".1", ".2"}) {
    EXPECT_TRUE(fs::exists(out_ + aside + "/losses.csv"));
    EXPECT_TRUE(fs::exists(out_ + aside + "/run.lock"));
  }
  EXPECT_FALSE(fs::exists(out_ + ".3"));
}

TEST_F(RunDirectoryTest, ForeignFilesAreRefusedByName) {
  Write("notes.txt", "mine");
  Write("checkpoints/step-00000001.safetensors", "mine");
  EXPECT_THAT(Refused(Use::kNew),
              AllOf(HasSubstr("\"checkpoints\" and 1 more"), HasSubstr("use another --out")));
  EXPECT_THAT(Refused(Use::kResume), HasSubstr("holds files that are no run's"));
  fs::remove_all(out_);
  Write("losses.csv", "day,loss\n");  // somebody else's
  Write("metrics.jsonl", "");
  Write("config.toml", "");
  EXPECT_THAT(Refused(Use::kNew), HasSubstr("\"config.toml\" and 2 more"));
  fs::remove_all(out_);
  std::ofstream(out_) << "a file";
  EXPECT_THAT(Refused(Use::kNew), HasSubstr("is a file and cannot be a run directory"));
}

TEST_F(RunDirectoryTest, ARunOfAnOlderVersionIsTakenForOne) {
  Write("losses.csv", "step,loss\n0,1\n");
  Write("metrics.jsonl", "");
  Write("config.toml", "");
  LeaveRun();
  EXPECT_TRUE(fs::exists(out_ + ".1/metrics.jsonl"));
}

TEST_F(RunDirectoryTest, ResumingTakesACheckpoint) {
  EXPECT_THAT(Refused(Use::kResume), HasSubstr("holds no checkpoint to go on from"));
  LeaveRun();
  fs::remove_all(out_ + "/checkpoints");
  EXPECT_THAT(Refused(Use::kResume), HasSubstr(out_ + "/checkpoints"));
}

TEST_F(RunDirectoryTest, WhatAKilledProgramLeftIsRemoved) {
  LeaveRun();
  Write("summary.json.tmp-1-2", "half");
  Write("post_mortem/rank0.txt", "");
  Write("checkpoints/step-00000002.safetensors.tmp", "half");
  const auto directory = RunDirectory::Claim(out_, Use::kResume);
  ASSERT_TRUE(directory.ok()) << directory.status();
  ASSERT_EQ((*directory)->Begin(), absl::OkStatus());
  for (const char* name :
       {"summary.json.tmp-1-2", "post_mortem", "checkpoints/step-00000002.safetensors.tmp"}) {
    EXPECT_FALSE(fs::exists(fs::path(out_) / name)) << name;
  }
  EXPECT_TRUE(fs::exists(out_ + "/checkpoints/step-00000001.safetensors"));
}

TEST_F(RunDirectoryTest, ErrorsAreLeftInNewDirectoriesOnly) {
  LeaveErrorInNewDirectory(out_, absl::NotFoundError("no data"));
  EXPECT_EQ(*ReadFile(out_ + "/error.txt"), "no data\n");
  LeaveErrorInNewDirectory(out_, absl::NotFoundError("no data either"));
  EXPECT_EQ(*ReadFile(out_ + "/error.txt"), "no data either\n");
  LeaveRun();
  const auto run = Snapshot();
  LeaveErrorInNewDirectory(out_, absl::NotFoundError("no data"));
  EXPECT_EQ(Snapshot(), run);
}

TEST_F(RunDirectoryTest, AnAttemptOfALauncherIsStartedOverInPlaceUntilItHasACheckpoint) {
  LeaveRun();
  ASSERT_EQ(BeginRestarts(out_, "ddp dp=2"), absl::OkStatus());
  fs::remove_all(out_ + "/checkpoints");
  {
    const auto directory = RunDirectory::Claim(out_, Use::kNew);
    ASSERT_EQ((*directory)->Begin(), absl::OkStatus());
    EXPECT_FALSE(PathExists(out_ + ".1"));
    EXPECT_TRUE(PathExists(out_ + "/" + kRestartsFile));
  }
  Write("checkpoints/step-00000001.safetensors", "");
  const auto directory = RunDirectory::Claim(out_, Use::kNew);
  ASSERT_EQ((*directory)->Begin(), absl::OkStatus());
  EXPECT_TRUE(PathExists(out_ + ".1/checkpoints/step-00000001.safetensors"));
}

}  // namespace
}  // namespace lockstep
