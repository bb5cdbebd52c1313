#include "core/autograd/variable.h"

#include <utility>

#include "core/kernels/cpu/cpu_kernels.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

class GradientSlotTest : public testing::Test {
 protected:
  Tensor Of(float value) {
    Tensor t = kernels_.Empty({3});
    kernels_.Fill(t, value);
    return t;
  }
  static float ValueOf(const Tensor& t) { return t.data<float>()[2]; }

  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
};

TEST_F(GradientSlotTest, IsEmptyUntilSomethingComes) {
  GradientSlot slot;
  EXPECT_TRUE(slot.empty());
  EXPECT_FALSE(slot.Take().defined());
  slot.Add(kernels_, Of(1));
  EXPECT_FALSE(slot.empty());
  EXPECT_EQ(ValueOf(slot.Take()), 1);
  EXPECT_TRUE(slot.empty());
}

TEST_F(GradientSlotTest, TheFirstIsKeptWithoutACopy) {
  GradientSlot slot;
  const Tensor first = Of(1);
  slot.Add(kernels_, first);
  EXPECT_TRUE(slot.Take().same_storage(first));
}

TEST_F(GradientSlotTest, AddsInPlaceWhatNobodyElseHolds) {
  GradientSlot slot;
  slot.Add(kernels_, Of(1));
  Tensor second = Of(2);
  const float* memory = second.data<float>();
  const int64_t before = allocator_.books().live_total();
  slot.Add(kernels_, std::move(second));
  EXPECT_LT(allocator_.books().live_total(), before);  // one of the two is given back
  const Tensor sum = slot.Take();
  EXPECT_EQ(ValueOf(sum), 3);
  EXPECT_NE(sum.data<float>(), memory);  // the one that was there is added to
}

TEST_F(GradientSlotTest, NeverWritesToWhatSomebodyHolds) {
  const Tensor held = Of(1), also_held = Of(2);
  GradientSlot first_held, second_held, both_held;
  first_held.Add(kernels_, held);
  first_held.Add(kernels_, Of(10));
  second_held.Add(kernels_, Of(10));
  second_held.Add(kernels_, also_held);
  both_held.Add(kernels_, held);
  both_held.Add(kernels_, also_held);
  EXPECT_EQ(ValueOf(first_held.Take()), 11);
  EXPECT_EQ(ValueOf(second_held.Take()), 12);
  EXPECT_EQ(ValueOf(both_held.Take()), 3);
  EXPECT_EQ(ValueOf(held), 1);
  EXPECT_EQ(ValueOf(also_held), 2);
}

TEST_F(GradientSlotTest, OneTensorInSeveralSlotsStaysApart) {
  GradientSlot a, b;
  {
    const Tensor shared = Of(1);
    a.Add(kernels_, shared);
    b.Add(kernels_, shared);
  }
  a.Add(kernels_, Of(10));
  b.Add(kernels_, Of(100));
  EXPECT_EQ(ValueOf(a.Take()), 11);
  EXPECT_EQ(ValueOf(b.Take()), 101);
}

TEST_F(GradientSlotTest, OneTensorTwiceInOneSlot) {
  GradientSlot slot;
  Tensor twice = Of(1);
  slot.Add(kernels_, twice);
  slot.Add(kernels_, std::move(twice));
  EXPECT_EQ(ValueOf(slot.Take()), 2);
}

// A view shares its storage: under another shape it is still somebody else's.
TEST_F(GradientSlotTest, ViewsCountAsHolders) {
  GradientSlot slot;
  const Tensor held = Of(1);
  slot.Add(kernels_, held.Reshape({3, 1}));
  slot.Add(kernels_, Of(2).Reshape({3, 1}));
  EXPECT_EQ(ValueOf(slot.Take()), 3);
  EXPECT_EQ(ValueOf(held), 1);
}

}  // namespace
}  // namespace lockstep
