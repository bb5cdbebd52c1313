// The corpora of the fuzz targets: inputs that we wrote, and inputs that a fuzzer once failed on.

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/program.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/hostile/fuzz/fuzz_targets.h"
#include "tools/hostile/judgement.h"

namespace lockstep {
namespace {

struct FuzzTarget {
  const char* name;
  absl::Status (*run)(std::string_view input);
};

constexpr FuzzTarget kTargets[] = {
    {"byte_pairs", FuzzBytePairs}, {"cifar10", FuzzCifar10},      {"cluster", FuzzCluster},
    {"config", FuzzConfig},        {"losses", FuzzLosses},        {"safetensors", FuzzSafetensors},
    {"schedule", FuzzSchedule},    {"token_file", FuzzTokenFile},
};

class ReplayTest : public testing::TestWithParam<FuzzTarget> {};

TEST_P(ReplayTest, InputsEndWell) {
  const std::string folder = absl::StrCat("tools/hostile/fuzz/corpus/", GetParam().name);
  const auto names = ListFolder(folder);
  ASSERT_TRUE(names.ok()) << names.status();
  int accepted = 0, refused = 0;
  for (const std::string& name : *names) {
    SCOPED_TRACE(name);
    const auto input = ReadFile(folder + "/" + name);
    ASSERT_TRUE(input.ok()) << input.status();
    const absl::Status status = Catching([&] { return GetParam().run(*input); });
    EXPECT_EQ(ProblemOfError(status, MessageLimitFor(*input)), "");
    // What is meant to be right is called so: a fuzzer starts from it.
    if (name.starts_with("right")) {
      EXPECT_TRUE(status.ok()) << status;
    }
    ++(status.ok() ? accepted : refused);
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, 0);
}

INSTANTIATE_TEST_SUITE_P(Targets, ReplayTest, testing::ValuesIn(kTargets),
                         [](const auto& of) { return std::string(of.param.name); });

}  // namespace
}  // namespace lockstep
