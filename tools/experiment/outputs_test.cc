#include "tools/experiment/outputs.h"

#include <filesystem>
#include <string>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "core/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

ABSL_DECLARE_FLAG(bool, overwrite);

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;

class OutputsTest : public testing::Test {
 protected:
  OutputsTest() : folder_(testing::TempDir() + "/outputs_test") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }

  OutputFile Picture(const std::string& name) const {
    return OutputThatBeginsWith(Path(name), "a picture", "<svg");
  }

  void Write(const std::string& name, const std::string& contents) const {
    ASSERT_TRUE(WriteFileAtomically(Path(name), contents).ok());
  }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  const std::string folder_;
};

TEST_F(OutputsTest, NewEmptyAndOwnFilesMayBeWritten) {
  Write("empty", "");
  Write("old.svg", "<svg>");
  EXPECT_EQ(CheckOutputs({Picture("new"), Picture("empty"), Picture("old.svg")}, {Path("input")}),
            absl::OkStatus());
}

TEST_F(OutputsTest, FilesOfAnotherKindTakeAFlag) {
  Write("thesis.tex", "years of work");
  EXPECT_THAT(std::string(CheckOutputs({Picture("thesis.tex")}).message()),
              AllOf(HasSubstr("thesis.tex\" is there already and is not a picture"),
                    HasSubstr("--overwrite")));
  EXPECT_THAT(std::string(CheckOutputs({{.path = Path("thesis.tex"), .kind = "x"}}).message()),
              HasSubstr("is there already; name another file"));
  absl::SetFlag(&FLAGS_overwrite, true);
  EXPECT_EQ(CheckOutputs({Picture("thesis.tex")}), absl::OkStatus());
  absl::SetFlag(&FLAGS_overwrite, false);
}

TEST_F(OutputsTest, InputsAndOtherOutputsAreNeverWritten) {
  Write("a", "<svg>");
  fs::create_symlink("a", Path("link"));
  absl::SetFlag(&FLAGS_overwrite, true);
  EXPECT_THAT(std::string(CheckOutputs({Picture("link")}, {Path("a")}).message()),
              HasSubstr("is read and cannot be written too"));
  EXPECT_THAT(std::string(CheckOutputs({Picture("new"), Picture("new")}).message()),
              HasSubstr("is named for a picture and for a picture"));
  absl::SetFlag(&FLAGS_overwrite, false);
}

TEST_F(OutputsTest, WhatIsNoRegularFileIsNeverReplaced) {
  absl::SetFlag(&FLAGS_overwrite, true);
  EXPECT_THAT(
      std::string(CheckOutputs({OutputThatBeginsWith("/dev/full", "a page", "<")}).message()),
      HasSubstr("\"/dev/full\": it is a device"));
  absl::SetFlag(&FLAGS_overwrite, false);
}

}  // namespace
}  // namespace lockstep
