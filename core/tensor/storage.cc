#include "core/tensor/storage.h"

namespace lockstep {

Storage::Storage(Allocator& allocator, int64_t bytes, MemoryClass memory_class, FirstUse first_use)
    : allocator_(allocator),
      bytes_(bytes),
      memory_class_(memory_class),
      data_(static_cast<std::byte*>(allocator.Allocate(bytes, memory_class, first_use))) {}

Storage::~Storage() { Release(); }

void Storage::Release() {
  allocator_.Free(data_, bytes_, memory_class_);
  data_ = nullptr;
}

void Storage::Materialize() {
  if (data_ == nullptr) {
    data_ = static_cast<std::byte*>(allocator_.Allocate(bytes_, memory_class_));
  }
}

void Storage::Rebook(MemoryClass memory_class) {
  if (data_ != nullptr) allocator_.Rebook(bytes_, memory_class_, memory_class);
  memory_class_ = memory_class;
}

}  // namespace lockstep
