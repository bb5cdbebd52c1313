#include "core/tensor/allocator.h"

#include <sys/mman.h>

#include <algorithm>  // std::max
#include <bit>        // std::bit_floor
#include <cstdlib>
#include <new>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/status.h"  // StatusException
#include "glog/logging.h"

namespace lockstep {
namespace {

// Larger blocks are aligned to huge pages: a step streams through them, and the page walks show.
constexpr int64_t kHugePage = 2 << 20;

// The size under which a block is kept: `bytes` rounded up to one of eight sizes between powers of
// two. Some sizes differ from step to step by a little, as those of the rows of an expert do: each
// would take fresh pages, and be kept for nobody. What is not used of a block is never touched.
int64_t KeptSize(int64_t bytes) {
  const int64_t step =
      std::max(kAlignment, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes))) / 8);
  return (bytes + step - 1) / step * step;
}

// `room`: what there would have been.
[[noreturn]] void ThrowOutOfMemory(int64_t bytes, MemoryClass memory_class, const std::string& room,
                                   const MemoryBooks& books) {
  throw StatusException(absl::ResourceExhaustedError(absl::StrCat(
      "out of memory: ", FormatBytes(bytes), " asked for ", Name(memory_class), ", ",
      FormatBytes(books.live_total()), " in use ", room, " (", books.ToString(),
      "). Use a smaller micro-batch or model, a strategy that shards, or raise memory.limit.")));
}

}  // namespace

void* Allocator::Allocate(int64_t bytes, MemoryClass memory_class, FirstUse first_use) {
  if (bytes == 0) return nullptr;
  const int64_t rounded = AlignedBytes(bytes);
  std::lock_guard lock(mutex_);
  if (limit_ > 0 && books_.live_total() + rounded > limit_) {
    ThrowOutOfMemory(rounded, memory_class,
                     absl::StrCat("of the limit of ", FormatBytes(limit_), " per rank"), books_);
  }
  void* block =
      first_use == FirstUse::kUpload ? AllocateUploadBlock(rounded) : AllocateBlock(rounded);
  if (block == nullptr) ThrowOutOfMemory(rounded, memory_class, Room(), books_);
  books_.Add(memory_class, rounded);
  NoteChange();
  return block;
}

void Allocator::Free(void* block, int64_t bytes, MemoryClass memory_class) {
  if (block == nullptr) return;
  const int64_t rounded = AlignedBytes(bytes);
  std::lock_guard lock(mutex_);
  books_.Remove(memory_class, rounded);
  try {
    NoteChange();
  } catch (const std::bad_alloc&) {
    // The history lacks a sample. Destructors come here, which must not throw.
  }
  FreeBlock(block, rounded);
}

void Allocator::Rebook(int64_t bytes, MemoryClass from, MemoryClass to) {
  const int64_t rounded = AlignedBytes(bytes);
  std::lock_guard lock(mutex_);
  books_.Remove(from, rounded);
  books_.Add(to, rounded);
  NoteChange();
}

void Allocator::set_limit(int64_t bytes) {
  std::lock_guard lock(mutex_);
  limit_ = bytes;
}

MemoryBooks Allocator::books() const {
  std::lock_guard lock(mutex_);
  return books_;
}

void Allocator::ResetPeaks() {
  std::lock_guard lock(mutex_);
  books_.ResetPeaks();
}

void Allocator::StartHistory() {
  std::lock_guard lock(mutex_);
  history_.emplace();
  AddSample();
}

std::vector<MemorySample> Allocator::StopHistory() {
  std::lock_guard lock(mutex_);
  return std::exchange(history_, std::nullopt).value_or(std::vector<MemorySample>());
}

void Allocator::AddSample() {
  history_->push_back({.nanos = NowNanos(), .live_bytes = books_.live()});
}

CpuAllocator::~CpuAllocator() {
  for (auto& [bytes, blocks] : free_blocks_) {
    for (void* block : blocks) std::free(block);
  }
}

void* CpuAllocator::AllocateBlock(int64_t bytes) {
  bytes = KeptSize(bytes);
  auto kept = free_blocks_.find(bytes);
  if (kept != free_blocks_.end() && !kept->second.empty()) {
    void* block = kept->second.back();
    kept->second.pop_back();
    return block;
  }
  const int64_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
  void* block = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (block != nullptr && bytes >= kHugePage) madvise(block, bytes, MADV_HUGEPAGE);
  return block;
}

void CpuAllocator::FreeBlock(void* block, int64_t bytes) {
  try {
    free_blocks_[KeptSize(bytes)].push_back(block);
  } catch (const std::bad_alloc&) {
    std::free(block);  // there is no memory to keep it by
  }
}

}  // namespace lockstep
