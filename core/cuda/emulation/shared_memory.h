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
    int32_t thread = 0;
    uint32_t warp_epoch = 0;

    int32_t warp() const { return thread / 32; }
  };

  SharedMemory();
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // A new block with so many bytes of dynamic memory, all of it NaN.
  void BeginBlock(size_t dynamic_bytes);
  // All threads have passed a barrier.
  void PassBarrier() { ++epoch_; }

  // The variable `key`; null where there is no room. Behind what is dynamic.
  void* Variable(const void* key, size_t bytes, size_t alignment);
  unsigned char* dynamic() { return bytes_; }
  unsigned char* begin() { return bytes_; }

  bool Contains(const void* address) const { return Offset(address) < kBytes; }
  size_t Offset(const void* address) const;
  // Why the access is none, or empty.
  std::string Read(size_t offset, size_t bytes, const Accessor& accessor);
  std::string Write(size_t offset, size_t bytes, const Accessor& accessor);

 private:
  static constexpr size_t kBytes = 256 << 10;
  static constexpr size_t kUnit = 2;  // bytes that the watch tells apart

  // An access; of several reads the last, and whether others have read.
  struct Stamp {
    uint64_t epoch = 0;
    Accessor by;
    bool many_lanes = false, many_warps = false;
  };
  struct Variables {
    const void* key;
    size_t offset, bytes;
  };

  bool Conflicts(const Stamp& earlier, const Accessor& accessor) const;
  void NoteRead(Stamp& stamp, const Accessor& accessor) const;
  bool IsVariable(size_t offset, size_t bytes) const;
  std::string DescribeOutside(size_t offset, size_t bytes) const;

  unsigned char* bytes_;
  size_t dynamic_bytes_ = 0, used_ = 0;
  uint64_t epoch_ = 0;
  std::vector<Variables> variables_;
  std::vector<Stamp> reads_, writes_;
};

}  // namespace lockstep::emulation
