#pragma once

#include <cstddef>
#include <cstdint>

#include "core/tensor/allocator.h"

namespace lockstep {

// A block of a rank's memory that tensors share. It can be released and filled again while tensors
// refer to it: FSDP frees a unit's gathered parameters between its uses, and whatever backward
// saved stays valid as a handle.
class Storage {
 public:
  // Books and allocates `bytes`. The allocator outlives the storage.
  Storage(Allocator& allocator, int64_t bytes, MemoryClass memory_class,
          FirstUse first_use = FirstUse::kKernels);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  // The first byte, on a 64-byte boundary; null while released (or when empty).
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  MemoryClass memory_class() const { return memory_class_; }
  Allocator& allocator() const { return allocator_; }

  // Gives the memory back; handles stay. Without effect when already released.
  void Release();
  // Allocates again, contents undefined. Without effect when not released.
  void Materialize();
  bool released() const { return data_ == nullptr && bytes_ > 0; }

  // Books the bytes under another class from now on.
  void Rebook(MemoryClass memory_class);

 private:
  Allocator& allocator_;
  int64_t bytes_;
  MemoryClass memory_class_;
  std::byte* data_;
};

}  // namespace lockstep
