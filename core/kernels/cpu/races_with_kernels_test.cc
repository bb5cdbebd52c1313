// ThreadSanitizer must find a thread that touches a kernel's tensors meanwhile, though kernels only
// announce what they do (span.h). Runs under --config=tsan alone.

#include <thread>

#include "core/kernels/cpu/cpu_kernels.h"
#include "core/tensor/allocator.h"
#include "core/tensor/tensor.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr int kRaceExitCode = 66;  // ThreadSanitizer's

class RacesWithKernelsDeathTest : public testing::Test {
 protected:
  // Adds in one thread while the calling one does something else, in no order.
  template <typename Function>
  void AddBeside(const Function& other) {
    std::thread adding([this] { kernels_.Add(a_, b_, y_); });
    other();
    adding.join();
  }
  Tensor Vector() { return Tensor::Empty(allocator_, {64}, DType::kF32, MemoryClass::kWorkspace); }

  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
  Tensor a_ = Vector(), b_ = Vector(), y_ = Vector();
};

TEST_F(RacesWithKernelsDeathTest, AnInputIsWritten) {
  EXPECT_EXIT(AddBeside([this] { a_.data<float>()[63] = 1; }),
              testing::ExitedWithCode(kRaceExitCode), "data race");
}

TEST_F(RacesWithKernelsDeathTest, AnOutputIsRead) {
  volatile float seen = 0;
  EXPECT_EXIT(AddBeside([&] { seen = y_.data<float>()[63]; }),
              testing::ExitedWithCode(kRaceExitCode), "data race");
}

TEST_F(RacesWithKernelsDeathTest, NoneWhereAnInputIsReadAndBehindTheEnd) {
  volatile float seen = 0;
  AddBeside([&] { seen = a_.data<float>()[63]; });
  seen = y_.data<float>()[63];
  a_.data<float>()[63] = seen;
}

}  // namespace
}  // namespace lockstep
