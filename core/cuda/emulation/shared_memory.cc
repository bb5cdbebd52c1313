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
      stamps_(kBytes / kUnit) {
  CHECK(bytes_ != nullptr);
}

SharedMemory::~SharedMemory() { std::free(bytes_); }

void SharedMemory::BeginBlock(size_t dynamic_bytes) {
  dynamic_bytes_ = dynamic_bytes;
  // A gap, so that who goes beyond the dynamic memory meets no variable.
  used_ = RoundUp(dynamic_bytes + 1, kAlignment);
  variables_.clear();
  NextEpoch();
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

bool SharedMemory::IsStaticVariable(size_t offset, size_t bytes) const {
  for (const Variables& each : variables_) {
    if (offset >= each.offset && offset + bytes <= each.offset + each.bytes) return true;
  }
  return false;
}

void SharedMemory::NextEpoch() {
  // After 2^32 epochs the numbers repeat, and old stamps would look new.
  if (++epoch_ != 0) return;
  stamps_.assign(stamps_.size(), {});
  epoch_ = 1;
}

std::string SharedMemory::WhyNot(bool is_write, size_t offset, size_t bytes,
                                 const Accessor& accessor) const {
  if (!IsVariable(offset, bytes)) {
    return absl::StrCat("bytes ", offset, " to ", offset + bytes,
                        " of shared memory, which are in no variable; ", dynamic_bytes_,
                        " of them are dynamic");
  }
  for (size_t i = offset / kUnit; i <= (offset + bytes - 1) / kUnit; ++i) {
    const auto& [read, write] = stamps_[i];
    if (!is_write && Conflicts(write, accessor)) {
      return absl::StrCat("what thread ", write.by.thread,
                          " wrote to shared memory with no barrier since");
    }
    for (const Stamp* earlier : {&read, &write}) {
      if (is_write && Conflicts(*earlier, accessor)) {
        return absl::StrCat("shared memory that thread ", earlier->by.thread,
                            earlier == &read ? " read" : " wrote", " with no barrier since");
      }
    }
  }
  LOG(FATAL) << "an access to shared memory that was not refused";
}

}  // namespace lockstep::emulation
