#include "core/base/file.h"

#include <fcntl.h>  // O_RDWR
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>        // mkdtemp
#include <sys/resource.h>  // setrlimit
#include <sys/stat.h>      // mkfifo
#include <unistd.h>        // _exit, geteuid, seteuid

#include <cstddef>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

namespace fs = std::filesystem;

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

// A fresh directory under the system's one for temporary files, open to all users.
class FileTest : public testing::Test {
 protected:
  FileTest() {
    std::string pattern = (fs::temp_directory_path() / "lockstep_file_test.XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    fs::permissions(directory_, fs::perms::all);
  }
  ~FileTest() override { fs::remove_all(directory_); }

  std::string Path(const std::string& name) const { return (directory_ / name).string(); }

  // Names in the directory, so that a forgotten temporary file shows.
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

  fs::path directory_;
};

TEST_F(FileTest, ReadsWhatWasWritten) {
  const std::string path = Path("a.bin");
  for (size_t size : {0, 1, 100, (256 << 10) - 1, 256 << 10, (256 << 10) + 1, 3'000'000}) {
    std::string contents(size, '\0');
    for (size_t i = 0; i < size; ++i) contents[i] = static_cast<char>(i * 31 + i / 251);
    ASSERT_EQ(WriteFileAtomically(path, contents), absl::OkStatus());
    const absl::StatusOr<std::string> read = ReadFile(path);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(*read == contents) << size;
    EXPECT_THAT(Names(), testing::ElementsAre("a.bin"));
  }
}

TEST_F(FileTest, ReadsFilesWhoseSizeIsUnknown) {
  const absl::StatusOr<std::string> status = ReadFile("/proc/self/status");
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_THAT(*status, HasSubstr("VmRSS"));
}

TEST_F(FileTest, PutsFilesAndFoldersInPlace) {
  ASSERT_EQ(WriteFileAtomically(Path("a"), "old"), absl::OkStatus());
  ASSERT_EQ(WriteFileAtomically(Path("b"), "new"), absl::OkStatus());
  EXPECT_EQ(PutInPlace(Path("b"), Path("a")), absl::OkStatus());
  EXPECT_EQ(ReadFile(Path("a")).value(), "new");

  fs::create_directories(Path("draft"));
  ASSERT_EQ(WriteFileAtomically(Path("draft/file"), "new"), absl::OkStatus());
  EXPECT_EQ(PutInPlace(Path("draft"), Path("folder")), absl::OkStatus());
  EXPECT_THAT(Names(), testing::UnorderedElementsAre("a", "folder"));

  // A folder that holds something is not replaced.
  fs::create_directories(Path("draft"));
  EXPECT_THAT(MessageOf(PutInPlace(Path("draft"), Path("folder"))),
              HasSubstr("cannot put in place \"" + Path("folder") + "\""));
  EXPECT_EQ(ReadFile(Path("folder/file")).value(), "new");
}

TEST_F(FileTest, ReadErrorsNameThePath) {
  const absl::Status missing = ReadFile(Path("missing")).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(MessageOf(missing),
            "cannot read \"" + Path("missing") + "\": No such file or directory");
  EXPECT_EQ(MessageOf(ReadFile(directory_.string()).status()),
            "cannot read \"" + directory_.string() + "\": it is a directory");
}

TEST_F(FileTest, StreamsInPiecesOfAllSizes) {
  std::string expected;
  {
    absl::StatusOr<AtomicFileWriter> writer = AtomicFileWriter::Open(Path("stream"));
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (size_t size : {3, 0, 100'000, 200'000, 1'000'000, 7, 262'144}) {
      const std::string piece(size, static_cast<char>('a' + size % 26));
      ASSERT_EQ(writer->Append(piece), absl::OkStatus());
      expected += piece;
    }
    EXPECT_FALSE(fs::exists(Path("stream")));
    ASSERT_EQ(writer->Commit(), absl::OkStatus());
  }
  EXPECT_TRUE(ReadFile(Path("stream")).value() == expected);
  EXPECT_THAT(Names(), testing::ElementsAre("stream"));
}

TEST_F(FileTest, OverwritesWhatWasAdded) {
  for (const size_t size : {20, 1'000'000}) {
    std::string expected(size, 'a');
    absl::StatusOr<AtomicFileWriter> writer = AtomicFileWriter::Open(Path("stream"));
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_EQ(writer->Append(expected), absl::OkStatus());
    ASSERT_EQ(writer->Append("before"), absl::OkStatus());
    ASSERT_EQ(writer->Overwrite(7, "new"), absl::OkStatus());
    ASSERT_EQ(writer->Append("behind"), absl::OkStatus());
    ASSERT_EQ(writer->Commit(), absl::OkStatus());
    expected.replace(7, 3, "new");
    EXPECT_TRUE(ReadFile(Path("stream")).value() == expected + "beforebehind") << size;
  }
}

TEST_F(FileTest, WithoutCommitNothingChanges) {
  ASSERT_EQ(WriteFileAtomically(Path("kept"), "old"), absl::OkStatus());
  {
    absl::StatusOr<AtomicFileWriter> writer = AtomicFileWriter::Open(Path("kept"));
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_EQ(writer->Append(std::string(1'000'000, 'x')), absl::OkStatus());
    EXPECT_EQ(Names().size(), 2u);
    AtomicFileWriter moved = *std::move(writer);
    ASSERT_EQ(moved.Append("y"), absl::OkStatus());
  }
  EXPECT_EQ(ReadFile(Path("kept")).value(), "old");
  EXPECT_THAT(Names(), testing::ElementsAre("kept"));
}

TEST_F(FileTest, MoveAssignmentDiscardsTheOldFile) {
  absl::StatusOr<AtomicFileWriter> first = AtomicFileWriter::Open(Path("first"));
  absl::StatusOr<AtomicFileWriter> second = AtomicFileWriter::Open(Path("second"));
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_EQ(second->Append("2"), absl::OkStatus());
  *first = *std::move(second);
  EXPECT_EQ(first->path(), Path("second"));
  ASSERT_EQ(first->Commit(), absl::OkStatus());
  EXPECT_THAT(Names(), testing::ElementsAre("second"));
  EXPECT_EQ(ReadFile(Path("second")).value(), "2");
}

// Readers beside a writer see one whole version or another.
TEST_F(FileTest, ReadersNeverSeeHalfAFile) {
  const std::string path = Path("shared");
  const std::string a(500'000, 'a');
  const std::string b(300'000, 'b');
  ASSERT_EQ(WriteFileAtomically(path, a), absl::OkStatus());
  std::thread writer([&] {
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(WriteFileAtomically(path, i % 2 == 0 ? b : a), absl::OkStatus());
    }
  });
  for (int i = 0; i < 50; ++i) {
    const absl::StatusOr<std::string> read = ReadFile(path);
    EXPECT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(read.ok() && (*read == a || *read == b));
  }
  writer.join();
}

TEST_F(FileTest, WriteErrorsNameTheDirectoryAndTheReason) {
  const absl::Status missing = WriteFileAtomically(Path("none/a.txt"), "x");
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(MessageOf(missing), "cannot write into directory \"" + Path("none") +
                                    "\" (for the file \"" + Path("none/a.txt") +
                                    "\"): No such file or directory");
  EXPECT_EQ(MessageOf(WriteFileAtomically(directory_.string(), "x")),
            "cannot write \"" + directory_.string() + "\": it is a directory; name a file instead");
}

// A FIFO that nobody writes into would be waited for, and /dev/zero would be read for ever.
TEST_F(FileTest, OnlyRegularFilesAreReadAndReplaced) {
  const std::string fifo = Path("fifo"), loop = Path("loop");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0666), 0);
  fs::create_symlink(loop, loop);
  EXPECT_EQ(MessageOf(ReadFile(fifo).status()), "cannot read \"" + fifo + "\": it is a FIFO");
  EXPECT_EQ(MessageOf(ReadFile("/dev/zero").status()), "cannot read \"/dev/zero\": it is a device");
  EXPECT_THAT(MessageOf(OpenRegularFile(fifo, O_RDWR).status()),
              HasSubstr("cannot write \"" + fifo + "\": it is a FIFO"));
  for (const std::string& path : {fifo, std::string("/dev/full")}) {
    EXPECT_THAT(MessageOf(WriteFileAtomically(path, "x")), HasSubstr("; name a file instead"));
  }
  EXPECT_TRUE(fs::is_fifo(fifo));
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
  EXPECT_THAT(MessageOf(ReadFile(loop).status()), HasSubstr("Too many levels of symbolic links"));
}

// std::filesystem throws for these, unless it is asked not to.
TEST_F(FileTest, PathsThatCannotBeLookedUpAreNotThere) {
  fs::create_symlink(Path("loop"), Path("loop"));
  for (const std::string& path : {Path(std::string(300, 'x')), Path("loop"), Path("loop/below")}) {
    EXPECT_FALSE(PathExists(path));
    EXPECT_FALSE(IsDirectory(path));
    EXPECT_THAT(MessageOf(FileBytes(path).status()), HasSubstr("cannot read \"" + path));
    EXPECT_THAT(MessageOf(ListFolder(path).status()), HasSubstr("cannot list folder \"" + path));
    RemoveTree(path + "/none");
  }
  ASSERT_EQ(WriteFileAtomically(Path("b"), "four"), absl::OkStatus());
  EXPECT_EQ(FileBytes(Path("b")).value(), 4);
  EXPECT_THAT(ListFolder(directory_.string()).value(), testing::ElementsAre("b", "loop"));
}

TEST_F(FileTest, TemporaryFilesOfKilledWritersAreRemoved) {
  for (const char* name : {"a.csv.tmp-12-3456", "a.csv.tmp-mine", "a.tmp", "kept"}) {
    ASSERT_EQ(WriteFileAtomically(Path(name), ""), absl::OkStatus());
  }
  RemoveTemporaryFiles(directory_.string());
  EXPECT_THAT(Names(), testing::UnorderedElementsAre("a.csv.tmp-mine", "a.tmp", "kept"));
}

// Writes a megabyte under a limit of 100 kB on the size of files, which takes the same way through
// the code as a full disk; prints the error and ends the process, with 7 if there was one.
[[noreturn]] void WriteBeyondTheLimit(const std::string& path) {
  signal(SIGXFSZ, SIG_IGN);
  const rlimit limit = {100'000, 100'000};
  setrlimit(RLIMIT_FSIZE, &limit);
  const absl::Status status = WriteFileAtomically(path, std::string(1'000'000, 'x'));
  fputs(MessageOf(status).c_str(), stderr);
  _exit(status.ok() ? 0 : 7);
}

TEST_F(FileTest, NoRoomIsReportedAndTheOldFileStays) {
  ASSERT_EQ(WriteFileAtomically(Path("kept"), "old"), absl::OkStatus());
  EXPECT_EXIT(WriteBeyondTheLimit(Path("kept")), testing::ExitedWithCode(7),
              "cannot write \".*/kept\": File too large");
  EXPECT_EQ(ReadFile(Path("kept")).value(), "old");
  EXPECT_THAT(Names(), testing::ElementsAre("kept"));
}

// Root may write anywhere, so there the test acts as the user nobody.
class AsOrdinaryUser {
 public:
  AsOrdinaryUser() : was_root_(geteuid() == 0) {
    constexpr uid_t kNobody = 65534;
    if (was_root_) {
      EXPECT_EQ(seteuid(kNobody), 0);
    }
  }
  ~AsOrdinaryUser() {
    if (was_root_) {
      EXPECT_EQ(seteuid(0), 0);
    }
  }

 private:
  bool was_root_;
};

TEST_F(FileTest, AnUnwritableDirectoryIsNamed) {
  const std::string locked = Path("locked");
  fs::create_directory(locked);
  fs::permissions(locked, fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read |
                              fs::perms::others_exec);
  const AsOrdinaryUser user;
  const absl::Status write = WriteFileAtomically(locked + "/a.txt", "x");
  EXPECT_EQ(write.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(MessageOf(write), "cannot write into directory \"" + locked + "\" (for the file \"" +
                                  locked + "/a.txt\"): Permission denied");
  const absl::Status make = MakeDirectories(locked + "/run/7");
  EXPECT_EQ(make.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(MessageOf(make), "cannot make directory \"" + locked + "/run\": Permission denied");
}

TEST_F(FileTest, MakesDirectoriesAndAcceptsThoseThatExist) {
  EXPECT_EQ(MakeDirectories(Path("a/b//c/")), absl::OkStatus());
  EXPECT_TRUE(fs::is_directory(Path("a/b/c")));
  EXPECT_EQ(MakeDirectories(Path("a/b/c")), absl::OkStatus());
  EXPECT_EQ(MakeDirectories("/"), absl::OkStatus());
  EXPECT_EQ(MakeDirectories("."), absl::OkStatus());
}

TEST_F(FileTest, MakeDirectoriesNamesTheFileInTheWay) {
  ASSERT_EQ(WriteFileAtomically(Path("a"), ""), absl::OkStatus());
  EXPECT_EQ(MessageOf(MakeDirectories(Path("a/b"))),
            "cannot make directory \"" + Path("a") + "\": a file of that name is in the way");
}

TEST_F(FileTest, ThreadsMakeTheSameDirectoriesTogether) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { EXPECT_EQ(MakeDirectories(Path("x/y/z")), absl::OkStatus()); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(fs::is_directory(Path("x/y/z")));
}

}  // namespace
}  // namespace lockstep
