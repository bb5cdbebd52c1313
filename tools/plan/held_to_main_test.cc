// The program that holds plans to rows, as users call it.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/base/file.h"
#include "core/base/subprocess.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr char kHeader[] =
    "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,"
    "tensor parallelism,data parallelism,pipeline parallelism,iteration time (ms)\n";

std::string RowsFile(const std::string& text) {
  const std::string path = testing::TempDir() + "/rows.csv";
  EXPECT_TRUE(WriteFileAtomically(path, text).ok());
  return path;
}

ProcessResult HeldTo(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "tools/plan/held_to");
  auto result = RunProcess({.arguments = arguments});
  EXPECT_TRUE(result.ok()) << result.status();
  return *std::move(result);
}

// Two meshes of one group and one row of another group.
TEST(HeldToTest, PrintsErrorsAndTheRegretOfEachGroup) {
  const std::string rows = RowsFile(std::string(kHeader) +
                                    "2,16,4,512,8,2,512,2,1,1,100\n"
                                    "2,16,4,512,8,2,512,1,2,1,50\n"
                                    "1,16,4,512,8,2,512,1,1,1,70\n");
  const ProcessResult result =
      HeldTo({"--rows", rows, "--cluster", "a100_80g", "--dialect", "megatron_2021"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(
      result.out,
      AllOf(ContainsRegex("predicted ms +measured ms +error"),
            ContainsRegex(" 100\\.00 +[-+][0-9.]+%  line 2: 2 GPUs, tp 2, dp 1, pp 1"),
            ContainsRegex(" 50\\.00 +[-+][0-9.]+%  line 3: 2 GPUs, tp 1, dp 2, pp 1"),
            ContainsRegex(" 70\\.00 +[-+][0-9.]+%  line 4: 1 GPUs"),
            HasSubstr("regret by group; 1 groups of one row are left out"),
            ContainsRegex("2 GPUs, batch 16, 2 x 512, 8 heads, sequence 512 +2  tp [12], dp [12], "
                          "pp 1, micro-batch 4  tp 1, dp 2, pp 1, micro-batch 4 +[0-9.]+ %"),
            ContainsRegex("3 rows: error mean .*, median .*, largest .*; regret of 2 groups: ")));
}

TEST(HeldToTest, SaysWhatIsWrongInOneLine) {
  const std::string rows = RowsFile("# GPUs,global batch\n1,1\n");
  struct BadInput {
    std::vector<std::string> arguments;
    std::string message;
  };
  for (const BadInput& bad :
       std::vector<BadInput>{{{}, "--rows FILE.csv is missing"},
                             {{"--rows", "no_such.csv"}, "no_such.csv"},
                             {{"--rows", rows}, "'micro batch'"},
                             {{"--rows", rows, "--cluster", "h1000"}, "h1000"},
                             {{"--rows", rows, "--dialect", "french"}, "french"}}) {
    const ProcessResult result = HeldTo(bad.arguments);
    EXPECT_EQ(result.exit_code, 1) << bad.message;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, AllOf(HasSubstr(bad.message), EndsWith("\n")));
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  }
}

}  // namespace
}  // namespace lockstep
