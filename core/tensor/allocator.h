#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor/device.h"
#include "core/tensor/memory.h"

namespace lockstep {

// Every tensor's data, views into flat buffers included, starts on such a boundary: vectorised
// reductions sum in an order that depends on alignment (contract 3 of the design).
inline constexpr int64_t kAlignment = 64;

// `bytes` rounded up to the alignment: how far apart neighbours in a flat buffer begin.
constexpr int64_t AlignedBytes(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// What uses a block first. A GPU runs kernels in one order and uploads in another: a block that an
// upload fills need not wait for the kernels that are queued. The CPU makes no difference.
enum class FirstUse { kKernels, kUpload };

// The memory of one rank: hands out aligned blocks and books them by what they are for.
// Thread-safe: a rank's communication and data threads allocate too.
class Allocator {
 public:
  virtual ~Allocator() = default;

  // A block of at least `bytes` bytes, contents undefined; null for 0 bytes. Throws StatusException
  // (base/status.h) with ResourceExhausted when the limit or the machine has no room: the message
  // says what was asked for, what the limit is, and what each class holds.
  void* Allocate(int64_t bytes, MemoryClass memory_class, FirstUse first_use = FirstUse::kKernels);

  // Gives back a block that Allocate handed out with the same size and class.
  void Free(void* block, int64_t bytes, MemoryClass memory_class);

  // Moves a live block from one class to another in the books.
  void Rebook(int64_t bytes, MemoryClass from, MemoryClass to);

  // The most that may be live at once, in bytes; 0, the default, sets no limit.
  void set_limit(int64_t bytes);

  MemoryBooks books() const;
  void ResetPeaks();

  // Between the two, what is live is noted at once and after each change; StopHistory returns that,
  // oldest first. Outside, a change costs one test more.
  void StartHistory();
  std::vector<MemorySample> StopHistory();

  virtual Device device() const = 0;

 protected:
  // The device's part. `bytes` is positive and a multiple of the alignment; null: no memory.
  virtual void* AllocateBlock(int64_t bytes) = 0;
  virtual void FreeBlock(void* block, int64_t bytes) = 0;
  // AllocateBlock for FirstUse::kUpload.
  virtual void* AllocateUploadBlock(int64_t bytes) { return AllocateBlock(bytes); }
  // What to say of the room that is left where AllocateBlock found none: "and GPU 0 has ...".
  virtual std::string Room() const { return "and the machine has no more"; }

 private:
  // The books have changed. With the mutex held.
  void NoteChange() {
    if (history_) AddSample();
  }
  void AddSample();

  mutable std::mutex mutex_;
  MemoryBooks books_;
  int64_t limit_ = 0;
  std::optional<std::vector<MemorySample>> history_;  // while it is kept
};

// Host memory. Freed blocks are kept by size and handed out again: a training step asks for the
// same sizes over and over, and fresh pages cost more than most of its element-wise kernels.
class CpuAllocator final : public Allocator {
 public:
  ~CpuAllocator() override;
  Device device() const override { return {DeviceType::kCpu, 0}; }

 protected:
  void* AllocateBlock(int64_t bytes) override;
  void FreeBlock(void* block, int64_t bytes) override;

 private:
  std::map<int64_t, std::vector<void*>> free_blocks_;  // by size
};

}  // namespace lockstep
