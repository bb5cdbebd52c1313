#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/cuda/libraries/libraries.h"
#include "cublasLt.h"
#include "cuda_runtime_api.h"
#include "cudnn.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nccl.h"
#include "tools/bench/gpu_training.h"
#include "tools/portable/commands.h"

namespace lockstep {
namespace {

// What an optional part of the machine says of itself: its version, or that it is missing.
std::string VersionOr(const absl::Status& loaded, const std::function<size_t()>& version) {
  return loaded.ok() ? std::to_string(version()) : "missing";
}

// Prints the versions of NVIDIA's driver and libraries that this program meets when it runs, which
// benchmarks are recorded with. Returns the exit code: 1 where there is no driver.
int PrintGpuVersions(int /*argc*/, char** /*argv*/) {
  // What goes wrong leaves 0; a driver that is missing does too, without an error.
  int driver = 0, runtime = 0;
  static_cast<void>(cudaDriverGetVersion(&driver));
  static_cast<void>(cudaRuntimeGetVersion(&runtime));
  std::printf("driver for CUDA %d.%d, CUDA runtime %d.%d\n", driver / 1000, driver % 1000 / 10,
              runtime / 1000, runtime % 1000 / 10);
  const auto nccl = [] {
    int version = 0;
    static_cast<void>(ncclGetVersion(&version));
    return static_cast<size_t>(version);
  };
  std::printf("cuBLASLt %s, cuDNN %s, NCCL %s\n",
              VersionOr(cuda::LoadCublasLt(), cublasLtGetVersion).c_str(),
              VersionOr(cuda::LoadCudnn(), cudnnGetVersion).c_str(),
              VersionOr(cuda::LoadNccl(), nccl).c_str());
  return driver == 0 ? 1 : 0;
}

}  // namespace

std::vector<Command> GpuCommands() {
  const auto test = [](int argc, char** argv) {
    // Death tests start the program again: with its file first, and the command behind it.
    std::string file = "/proc/self/exe";
    std::vector<char*> arguments(argv, argv + argc + 1);
    arguments.insert(arguments.begin(), file.data());
    int count = argc + 1;
    testing::InitGoogleMock(&count, arguments.data());
    const int exit_code = RUN_ALL_TESTS();
    // Where processes share the tests (GTEST_TOTAL_SHARDS), the first has one if any has.
    const char* shard = std::getenv("GTEST_SHARD_INDEX");
    const bool first = shard == nullptr || std::string(shard) == "0";
    if (!first || testing::UnitTest::GetInstance()->test_to_run_count() > 0) return exit_code;
    std::fprintf(stderr, "gpu_tests: no test matches --gtest_filter\n");
    return 1;
  };
  return {
      {"gpu_tests", test}, {"gpu_training", GpuTrainingMain}, {"gpu_versions", PrintGpuVersions}};
}

}  // namespace lockstep
