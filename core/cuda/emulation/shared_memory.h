#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::emulation {

// The shared memory of a block that runs, and a watch over races in it: of two accesses by two
// threads, one of which writes, a barrier must stand between them; within a warp, __syncwarp does.
class SharedMemory {
 public:
  // Who has an access: a thread by its number in the block, and how often its warp has passed a
  // __syncwarp.
  struct Accessor {
    uint32_t thread = 0;
    uint32_t warp_epoch = 0;

    uint32_t warp() const { return thread / 32; }
    bool operator==(const Accessor&) const = default;
  };

  SharedMemory();
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // A new block with so many bytes of dynamic memory, all of it NaN.
  void BeginBlock(size_t dynamic_bytes);
  // All threads have passed a barrier.
  void PassBarrier() { NextEpoch(); }

  // The variable `key`; null where there is no room. Behind what is dynamic.
  void* Variable(const void* key, size_t bytes, size_t alignment);
  unsigned char* dynamic() { return bytes_; }
  unsigned char* begin() { return bytes_; }

  bool Contains(const void* address) const { return Offset(address) < kBytes; }
  size_t Offset(const void* address) const {
    return reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(bytes_);
  }
  // Return whether the access is allowed, and note it. WhyNot explains one that is not.
  bool Read(size_t offset, size_t bytes, const Accessor& accessor) {
    if (!IsVariable(offset, bytes)) return false;
    for (size_t i = offset / kUnit; i <= (offset + bytes - 1) / kUnit; ++i) {
      if (Conflicts(stamps_[i].write, accessor)) return false;
      NoteRead(stamps_[i].read, accessor);
    }
    return true;
  }
  bool Write(size_t offset, size_t bytes, const Accessor& accessor) {
    if (!IsVariable(offset, bytes)) return false;
    for (size_t i = offset / kUnit; i <= (offset + bytes - 1) / kUnit; ++i) {
      if (Conflicts(stamps_[i].read, accessor) || Conflicts(stamps_[i].write, accessor)) {
        return false;
      }
      stamps_[i].write = {.epoch = epoch_, .by = accessor};
    }
    return true;
  }
  // Why Read or Write refused the access.
  std::string WhyNot(bool is_write, size_t offset, size_t bytes, const Accessor& accessor) const;

 private:
  static constexpr size_t kBytes = 256 << 10;
  static constexpr size_t kUnit = 2;  // bytes that the watch tells apart

  // An access; of several reads the last, and whether others have read.
  struct Stamp {
    uint32_t epoch = 0;
    Accessor by;
    bool many_lanes = false, many_warps = false;
  };
  // The last accesses of a unit, side by side to share a cache line.
  struct Stamps {
    Stamp read, write;
  };
  struct Variables {
    const void* key;
    size_t offset, bytes;
  };

  bool Conflicts(const Stamp& earlier, const Accessor& accessor) const {
    if (earlier.epoch != epoch_) return false;
    if (earlier.many_warps || earlier.by.warp() != accessor.warp()) return true;
    const bool other = earlier.many_lanes || earlier.by.thread != accessor.thread;
    return other && earlier.by.warp_epoch == accessor.warp_epoch;
  }
  void NoteRead(Stamp& stamp, const Accessor& accessor) const {
    if (stamp.epoch == epoch_ && stamp.by == accessor) return;
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
  bool IsVariable(size_t offset, size_t bytes) const {
    return offset + bytes <= dynamic_bytes_ || IsStaticVariable(offset, bytes);
  }
  bool IsStaticVariable(size_t offset, size_t bytes) const;
  // Begins an epoch, in which no access conflicts with earlier ones.
  void NextEpoch();

  unsigned char* bytes_;
  size_t dynamic_bytes_ = 0, used_ = 0;
  uint32_t epoch_ = 0;
  std::vector<Variables> variables_;
  std::vector<Stamps> stamps_;
};

}  // namespace lockstep::emulation
