#include "core/report/tensor_hashes.h"

#include <string>
#include <vector>

#include "core/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

const StepHashes kStep1 = {.step = 1,
                           .tensors = {{"head.weight", 0xff}, {"optimizer.m.head.weight", ~0ull}}};
const StepHashes kStep3 = {.step = 3, .tensors = {{"head.weight", 7}, {"with,comma", 0}}};

class HashesCsvTest : public testing::Test {
 protected:
  HashesCsvTest()
      : path_(testing::TempDir() + "/" +
              testing::UnitTest::GetInstance()->current_test_info()->name() + ".csv") {}

  void Write(const std::string& text) { ASSERT_TRUE(WriteFileAtomically(path_, text).ok()); }
  std::string Error() { return std::string(ReadHashes(path_).status().message()); }

  const std::string path_;
};

TEST_F(HashesCsvTest, ReadsWhatItWrote) {
  absl::StatusOr<HashesCsv> file = HashesCsv::Create(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->Append(kStep1).ok());
  ASSERT_TRUE(file->Append(kStep3).ok());
  EXPECT_EQ(ReadFile(path_).value(),
            "step,hash,tensor\n1,00000000000000ff,head.weight\n"
            "1,ffffffffffffffff,optimizer.m.head.weight\n"
            "3,0000000000000007,head.weight\n3,0000000000000000,with,comma\n");
  EXPECT_EQ(ReadHashes(path_).value(), (std::vector<StepHashes>{kStep1, kStep3}));
}

TEST_F(HashesCsvTest, AResumedRunReplacesItsLaterSteps) {
  ASSERT_TRUE(HashesCsv::Create(path_)->Append(kStep1).ok());
  ASSERT_TRUE(HashesCsv::Resume(path_, 2)->Append({.step = 2, .tensors = {{"a", 1}}}).ok());
  ASSERT_TRUE(HashesCsv::Resume(path_, 2)->Append(kStep3).ok());
  EXPECT_EQ(ReadHashes(path_).value(), (std::vector<StepHashes>{kStep1, kStep3}));
}

TEST_F(HashesCsvTest, DamagedFilesAreNamedWithTheLine) {
  EXPECT_THAT(Error(), HasSubstr(path_));
  Write("step,loss\n");
  EXPECT_THAT(Error(), HasSubstr(path_ + ":1: expected the line \"step,hash,tensor\""));
  for (const std::string row : {"1,ff", "one,ff,a", "1,xyz,a"}) {
    Write("step,hash,tensor\n0,0f,a\n" + row + "\n");
    EXPECT_THAT(Error(), HasSubstr(path_ + ":3: expected step, hash and tensor"));
    EXPECT_THAT(Error(), HasSubstr(row));
  }
}

}  // namespace
}  // namespace lockstep
