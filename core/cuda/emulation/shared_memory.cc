#include "core/cuda/emulation/shared_memory.h"

#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace lockstep::emulation {
namespace {

constexpr size_t kAlignment = 1024;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

SharedMemory::SharedMemory()
    : bytes_(static_cast<unsigned char*>(std::aligned_alloc(kAlignment, kBytes))),
      reads_(kBytes / kUnit),
      writes_(kBytes / kUnit) {
  CHECK(bytes_ != nullptr);
}

SharedMemory::~SharedMemory() { std::free(bytes_); }

void SharedMemory::BeginBlock(size_t dynamic_bytes) {
  dynamic_bytes_ = dynamic_bytes;
  // A gap, so that who goes beyond the dynamic memory meets no variable.
  used_ = RoundUp(dynamic_bytes + 1, kAlignment);
  variables_.clear();
  ++epoch_;
  std::memset(bytes_, 0xff, dynamic_bytes);
}

void* SharedMemory::Variable(const void* key, size_t bytes, size_t alignment) {
  for (const Variables& each : variables_) {
    if (each.key == key) return bytes_ + each.offset;
  }
  const size_t offset = RoundUp(used_, alignment < 16 ? 16 : alignment);
  if (offset + bytes > kBytes) return nullptr;
  used_ = offset + bytes + 1;
  variables_.push_back({key, offset, bytes});
  std::memset(bytes_ + offset, 0xff, bytes);
  return bytes_ + offset;
}

size_t SharedMemory::Offset(const void* address) const {
  return reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(bytes_);
}

bool SharedMemory::IsVariable(size_t offset, size_t bytes) const {
  if (offset + bytes <= dynamic_bytes_) return true;
  for (const Variables& each : variables_) {
    if (offset >= each.offset && offset + bytes <= each.offset + each.bytes) return true;
  }
  return false;
}

std::string SharedMemory::DescribeOutside(size_t offset, size_t bytes) const {
  return absl::StrCat("bytes ", offset, " to ", offset + bytes,
                      " of shared memory, which are in no variable; ", dynamic_bytes_,
                      " of them are dynamic");
}

bool SharedMemory::Conflicts(const Stamp& earlier, const Accessor& accessor) const {
  if (earlier.epoch != epoch_) return false;
  if (earlier.many_warps || earlier.by.warp() != accessor.warp()) return true;
  const bool other = earlier.many_lanes || earlier.by.thread != accessor.thread;
  return other && earlier.by.warp_epoch == accessor.warp_epoch;
}

void SharedMemory::NoteRead(Stamp& stamp, const Accessor& accessor) const {
  if (stamp.epoch != epoch_) {
    stamp = {.epoch = epoch_, .by = accessor};
  } else if (stamp.by.warp() != accessor.warp()) {
    stamp.many_warps = true;
  } else {
    stamp.many_lanes = stamp.by.warp_epoch == accessor.warp_epoch &&
                       (stamp.many_lanes || stamp.by.thread != accessor.thread);
    stamp.by = accessor;
  }
}

std::string SharedMemory::Read(size_t offset, size_t bytes, const Accessor& accessor) {
  if (!IsVariable(offset, bytes)) return DescribeOutside(offset, bytes);
  for (size_t i = offset / kUnit; i <= (offset + bytes - 1) / kUnit; ++i) {
    if (Conflicts(writes_[i], accessor)) {
      return absl::StrCat("what thread ", writes_[i].by.thread,
                          " wrote to shared memory with no barrier since");
    }
    NoteRead(reads_[i], accessor);
  }
  return "";
}

std::string SharedMemory::Write(size_t offset, size_t bytes, const Accessor& accessor) {
  if (!IsVariable(offset, bytes)) return DescribeOutside(offset, bytes);
  for (size_t i = offset / kUnit; i <= (offset + bytes - 1) / kUnit; ++i) {
    for (const Stamp* earlier : {&reads_[i], &writes_[i]}) {
      if (Conflicts(*earlier, accessor)) {
        return absl::StrCat("shared memory that thread ", earlier->by.thread,
                            earlier == &reads_[i] ? " read" : " wrote", " with no barrier since");
      }
    }
    writes_[i] = {.epoch = epoch_, .by = accessor};
  }
  return "";
}

}  // namespace lockstep::emulation
