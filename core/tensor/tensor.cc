#include "core/tensor/tensor.h"

#include "absl/strings/str_cat.h"

namespace lockstep {

Tensor Tensor::Empty(Allocator& allocator, const Shape& shape, DType dtype,
                     MemoryClass memory_class, FirstUse first_use) {
  Tensor tensor;
  tensor.shape_ = shape;
  tensor.elements_ = shape.elements();
  tensor.dtype_ = dtype;
  tensor.storage_ = std::make_shared<Storage>(allocator, tensor.bytes(), memory_class, first_use);
  return tensor;
}

Tensor Tensor::Reshape(const Shape& shape) const {
  CHECK_EQ(shape.elements(), elements_) << shape << " from " << shape_;
  Tensor view = *this;
  view.shape_ = shape;
  return view;
}

Tensor Tensor::View(int64_t offset, const Shape& shape) const {
  CHECK_GE(offset, 0);
  CHECK_LE(offset + shape.elements(), elements_) << shape << " from element " << offset;
  Tensor view = *this;
  view.byte_offset_ += offset * SizeOf(dtype_);
  CHECK_EQ(view.byte_offset_ % kAlignment, 0) << "a view must start on a 64-byte boundary";
  view.shape_ = shape;
  view.elements_ = shape.elements();
  return view;
}

std::string Tensor::ToString() const { return absl::StrCat(Name(dtype_), shape_.ToString()); }

}  // namespace lockstep
