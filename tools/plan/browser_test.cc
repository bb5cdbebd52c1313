// The pictures of a plan's page, as Chromium draws them. Carries the tag "browser" (.bazelrc).

#include <string>

#include "core/base/file.h"
#include "core/base/subprocess.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(PlanPicturesTest, ThePageAndEachChartHaveOne) {
  const std::string plan = testing::TempDir() + "/pictures";
  const auto result =
      RunProcess({.arguments = {"tools/plan/plan", "--workload",
                                "experiments/gpt_markov/workload.toml", "--cluster", "laptop",
                                "--mesh", "pp=2,dp=2", "--html", plan + ".html", "--png"}});
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->exit_code, 0) << result->err;
  for (const char* picture :
       {".png", "-step-timeline.png", "-step-memory-over-time.png", "-speed.png", "-cost.png"}) {
    EXPECT_THAT(result->out, HasSubstr(std::string("/pictures") + picture));
    EXPECT_THAT(ReadFile(plan + picture).value_or(""), StartsWith("\x89PNG")) << picture;
  }
}

}  // namespace
}  // namespace lockstep
