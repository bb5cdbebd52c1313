#include "core/tensor/tensor.h"

#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(ShapeTest, Arithmetic) {
  const Shape shape = {2, 3, 5};
  EXPECT_EQ(shape.elements(), 30);
  EXPECT_EQ(shape.rows(), 6);
  EXPECT_EQ(shape[-1], 5);
  EXPECT_EQ(shape[0], 2);
  EXPECT_EQ(shape.With(-1, 7), (Shape{2, 3, 7}));
  EXPECT_EQ(shape.ToString(), "[2, 3, 5]");
  EXPECT_EQ(Shape{}.elements(), 1);
  EXPECT_EQ(Shape{}.rows(), 1);
}

TEST(TensorTest, CopiesAndReshapesShareTheData) {
  CpuAllocator allocator;
  Tensor x = Tensor::Empty(allocator, {4, 4}, DType::kF32, MemoryClass::kActivations);
  Tensor y = x.Reshape({16});
  y.data<float>()[5] = 3;
  EXPECT_EQ(x.data<float>()[5], 3);
  EXPECT_TRUE(x.shared());
  EXPECT_TRUE(x.same_storage(y));
  y = Tensor();
  EXPECT_FALSE(x.shared());
  EXPECT_EQ(allocator.books().live(MemoryClass::kActivations), 64);
  x = Tensor();
  EXPECT_EQ(allocator.books().live_total(), 0);
}

TEST(TensorTest, ViewsIntoAFlatBuffer) {
  CpuAllocator allocator;
  Tensor flat = Tensor::Empty(allocator, {64}, DType::kF32, MemoryClass::kParameters);
  Tensor view = flat.View(16, {2, 8});
  view.data<float>()[0] = 7;
  EXPECT_EQ(flat.data<float>()[16], 7);
  EXPECT_EQ(view.bytes(), 64);
  EXPECT_DEATH(flat.View(1, {2}), "64-byte boundary");
  EXPECT_DEATH(flat.View(48, {17}), "from element 48");
}

TEST(TensorTest, StorageIsReleasedAndFilledAgainUnderLiveHandles) {
  CpuAllocator allocator;
  Tensor flat = Tensor::Empty(allocator, {32}, DType::kF32, MemoryClass::kParameters);
  Tensor view = flat.View(16, {16});
  flat.storage().Release();
  EXPECT_TRUE(flat.storage().released());
  EXPECT_EQ(view.raw(), nullptr);
  EXPECT_EQ(allocator.books().live_total(), 0);
  flat.storage().Materialize();
  EXPECT_EQ(view.raw(), flat.raw() + 64);
  EXPECT_EQ(allocator.books().live_total(), 128);
}

}  // namespace
}  // namespace lockstep
