#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/report/metrics.h"
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

  absl::StatusOr<RowFile> Open(int64_t first_step) {
    return RowFile::Open(path_, kHashesCsv, first_step);
  }
  void Write(const std::string& text) { ASSERT_TRUE(WriteFileAtomically(path_, text).ok()); }
  std::string Error() { return std::string(ReadHashes(path_).status().message()); }

  const std::string path_;
};

TEST_F(HashesCsvTest, ReadsWhatItWrote) {
  absl::StatusOr<RowFile> file = Open(0);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->Append(kStep1.ToRows()).ok());
  ASSERT_TRUE(file->Append(kStep3.ToRows()).ok());
  EXPECT_EQ(ReadFile(path_).value(),
            "step,hash,tensor\n1,00000000000000ff,head.weight\n"
            "1,ffffffffffffffff,optimizer.m.head.weight\n"
            "3,0000000000000007,head.weight\n3,0000000000000000,with,comma\n");
  EXPECT_EQ(ReadHashes(path_).value(), (std::vector<StepHashes>{kStep1, kStep3}));
}

TEST_F(HashesCsvTest, AResumedRunReplacesItsLaterSteps) {
  const StepHashes step2 = {.step = 2, .tensors = {{"a", 1}}};
  ASSERT_TRUE(Open(0)->Append(kStep1.ToRows()).ok());
  ASSERT_TRUE(Open(2)->Append(step2.ToRows()).ok());
  ASSERT_TRUE(Open(2)->Append(kStep3.ToRows()).ok());
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
  Write("step,hash,tensor\n0,0f,a\n1,0f,lay");
  EXPECT_THAT(Error(), HasSubstr(path_ + ":3: the last row has no line end"));
}

}  // namespace
}  // namespace lockstep
