#include "tools/plan/measured_rows.h"

#include <string>

#include "core/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kHeader[] =
    "iteration time (ms),# GPUs,global batch,micro batch,hidden size,attention heads,# layers,"
    "sequence length,tensor parallelism,data parallelism,pipeline parallelism,remark\n";

absl::StatusOr<std::vector<MeasuredRow>> Read(const std::string& text) {
  const std::string path = testing::TempDir() + "/rows.csv";
  EXPECT_TRUE(WriteFileAtomically(path, text).ok());
  return ReadMeasuredRows(path);
}
std::string MessageOf(const std::string& text) {
  return std::string(Read(text).status().message());
}

TEST(MeasuredRowsTest, ReadsColumnsInAnyOrder) {
  const auto rows = Read(std::string(kHeader) + "250.5, 8,32,4,1024,16,24,512,2,2,2,slow\n\n");
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 1);
  const MeasuredRow& row = rows->front();
  EXPECT_DOUBLE_EQ(row.seconds, 0.2505);
  EXPECT_EQ(row.gpus, 8);
  EXPECT_EQ(row.width, 1024);
  EXPECT_EQ(row.context, 512);
  const CommandLine run = RunOf(row, {"train.seed=5"});
  EXPECT_THAT(run.assignments,
              AllOf(Contains("cut.micro_batches=4"), Contains("pipeline.balance=[13, 13]"),
                    Contains("mesh.tp=2"), Contains("data.context=512"), Contains("train.seed=5")));
  EXPECT_THAT(RunOf(row, {}, 3).assignments, AllOf(Contains("pipeline.balance=[5, 4, 4, 4, 4, 5]"),
                                                   Contains("pipeline.stages_per_rank=3")));
}

TEST(MeasuredRowsTest, SaysWhatIsWrong) {
  EXPECT_THAT(MessageOf("# GPUs,global batch\n1,1\n"),
              AllOf(HasSubstr("rows.csv"), HasSubstr("'micro batch'"),
                    HasSubstr("'iteration time (ms)'"), Not(HasSubstr("'# GPUs'"))));
  const std::string header = kHeader;
  EXPECT_THAT(MessageOf(header), HasSubstr("no rows"));
  EXPECT_THAT(MessageOf(header + "1,2,3\n"), AllOf(HasSubstr(":2"), HasSubstr("3 cells")));
  EXPECT_THAT(MessageOf(header + "0,8,32,4,1024,16,24,512,2,2,2,\n"),
              AllOf(HasSubstr("'0'"), HasSubstr("iteration time")));
  EXPECT_THAT(MessageOf(header + "1,8,32,4,1024,16,24.5,512,2,2,2,\n"), HasSubstr("# layers"));
  EXPECT_THAT(MessageOf(header + "1,8,32,4,1024,16,24,512,2,2,4,\n"), HasSubstr("not of 8 GPUs"));
  EXPECT_THAT(MessageOf(header + "1,8,32,3,1024,16,24,512,2,2,2,\n"), HasSubstr("batch of 32"));
  EXPECT_THAT(MessageOf(header + "1,8,32,4,1024,16,25,512,2,2,2,\n"), HasSubstr("25 layers"));
}

}  // namespace
}  // namespace lockstep
