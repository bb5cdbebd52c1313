#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "core/tensor/storage.h"
#include "glog/logging.h"

namespace lockstep {

// A handle to a dense, row-major array in a rank's memory. Copies share the data; there are no
// strides: a kernel that reads a part of a row takes the row length and an offset instead. A
// default-constructed tensor is undefined and holds nothing.
//
//   Tensor x = Tensor::Empty(allocator, {batch, width}, DType::kF32, MemoryClass::kActivations);
//   float* p = x.data<float>();
class Tensor {
 public:
  Tensor() = default;

  // Memory with undefined contents. Throws StatusException when there is no room.
  static Tensor Empty(Allocator& allocator, const Shape& shape, DType dtype,
                      MemoryClass memory_class, FirstUse first_use = FirstUse::kKernels);

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  int64_t elements() const { return elements_; }
  int64_t bytes() const { return elements_ * SizeOf(dtype_); }
  Device device() const { return storage_->allocator().device(); }
  Allocator& allocator() const { return storage_->allocator(); }
  Storage& storage() const { return *storage_; }

  // Whether another tensor (or saved handle) shares the storage.
  bool shared() const { return storage_.use_count() > 1; }
  bool same_storage(const Tensor& other) const { return storage_ == other.storage_; }

  // The elements, in host or device memory; null while the storage is released. T must be the
  // element type.
  template <typename T>
  T* data() const {
    DCHECK(dtype_ == kDTypeOf<T>) << Name(dtype_);
    return reinterpret_cast<T*>(raw());
  }
  std::byte* raw() const {
    return storage_ == nullptr || storage_->data() == nullptr ? nullptr
                                                              : storage_->data() + byte_offset_;
  }
  template <typename T>
  absl::Span<T> span() const {
    return absl::MakeSpan(data<T>(), elements_);
  }

  // The same elements under another shape of the same size.
  Tensor Reshape(const Shape& shape) const;

  // `shape` elements from element `offset` on, as a tensor of its own over the same storage. The
  // offset must fall on the 64-byte boundary.
  Tensor View(int64_t offset, const Shape& shape) const;

  // "f32[2, 3]"
  std::string ToString() const;

 private:
  std::shared_ptr<Storage> storage_;
  int64_t byte_offset_ = 0;
  int64_t elements_ = 0;
  Shape shape_;
  DType dtype_ = DType::kF32;
};

}  // namespace lockstep
