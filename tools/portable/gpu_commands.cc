#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/bench/gpu_training.h"
#include "tools/portable/commands.h"

namespace lockstep {

std::vector<Command> GpuCommands() {
  const auto test = [](int argc, char** argv) {
    testing::InitGoogleMock(&argc, argv);
    return RUN_ALL_TESTS();
  };
  return {{"gpu_tests", test}, {"gpu_training", GpuTrainingMain}};
}

}  // namespace lockstep
