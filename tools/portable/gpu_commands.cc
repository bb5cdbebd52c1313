#include <cstdio>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/bench/gpu_training.h"
#include "tools/portable/commands.h"
#include "tools/portable/gpu_versions.h"

namespace lockstep {

std::vector<Command> GpuCommands() {
  const auto test = [](int argc, char** argv) {
    testing::InitGoogleMock(&argc, argv);
    const int exit_code = RUN_ALL_TESTS();
    if (testing::UnitTest::GetInstance()->test_to_run_count() > 0) return exit_code;
    std::fprintf(stderr, "gpu_tests: no test matches --gtest_filter\n");
    return 1;
  };
  const auto versions = [](int /*argc*/, char** /*argv*/) { return PrintGpuVersions(); };
  return {{"gpu_tests", test}, {"gpu_training", GpuTrainingMain}, {"gpu_versions", versions}};
}

}  // namespace lockstep
