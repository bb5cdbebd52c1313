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
  // Who has an access: `warp_epoch` counts the __syncwarp of the thread's warp.
  struct Accessor {
    int thread = 0, warp = 0;
    uint64_t warp_epoch = 0;
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

  struct Stamp {
    uint64_t epoch = 0;
    Accessor by;
    bool many_lanes = false, many_warps = false;  // of readers
  };
  struct Variables {
    const void* key;
    size_t offset, bytes;
  };

  bool Conflicts(const Stamp& earlier, const Accessor& accessor) const;
  std::string Judge(size_t offset, size_t bytes) const;

  unsigned char* bytes_;
  size_t dynamic_bytes_ = 0, used_ = 0;
  uint64_t epoch_ = 0;
  std::vector<Variables> variables_;
  std::vector<Stamp> reads_, writes_;
};

}  // namespace lockstep::emulation
