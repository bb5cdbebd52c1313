#include "tools/launch/file_watch.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/base/file.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class FileWatchTest : public testing::Test {
 protected:
  FileWatchTest() : path_(testing::TempDir() + "/file_watch_test") { fs::remove(path_); }

  // Writes the file in place, as at another time of its server's clock.
  void Write(const std::string& text, std::chrono::seconds from_now) const {
    std::ofstream(path_) << text;
    fs::last_write_time(path_, fs::file_time_type::clock::now() + from_now);
  }

  const std::string path_;
};

constexpr std::chrono::hours kHour{1};

TEST_F(FileWatchTest, AFileThatIsMadeHasChangedWhateverItsTime) {
  for (const auto from_now : {-kHour, 0 * kHour, kHour}) {
    fs::remove(path_);
    const FileWatch watch(path_);
    EXPECT_FALSE(watch.HasChanged());
    Write("host a", from_now);
    EXPECT_TRUE(watch.HasChanged()) << from_now.count();
    fs::remove(path_);
    EXPECT_FALSE(watch.HasChanged());
  }
}

TEST_F(FileWatchTest, AFileThatIsWrittenAgainHasChangedWhateverItsTime) {
  for (const auto from_now : {-kHour, 0 * kHour, kHour}) {
    Write("host a", -2 * kHour);
    const FileWatch watch(path_);
    EXPECT_FALSE(watch.HasChanged());
    Write("host b", from_now);
    EXPECT_TRUE(watch.HasChanged()) << from_now.count();
  }
}

TEST_F(FileWatchTest, AFileFromAheadOfOurClockHasNotChanged) {
  Write("host a", kHour);
  const FileWatch watch(path_);
  EXPECT_FALSE(watch.HasChanged());
  EXPECT_EQ(ReadFile(watch.path()).value(), "host a");
  EXPECT_FALSE(watch.HasChanged());
}

TEST_F(FileWatchTest, AFileThatIsReplacedHasChanged) {
  Write("host a", -kHour);
  const auto time = fs::last_write_time(path_);
  const FileWatch watch(path_);
  ASSERT_EQ(WriteFileAtomically(path_, "host b"), absl::OkStatus());
  fs::last_write_time(path_, time);
  EXPECT_TRUE(watch.HasChanged());
}

}  // namespace
}  // namespace lockstep
