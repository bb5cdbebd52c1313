#include "core/cuda/emulation/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace lockstep::emulation {
namespace {

constexpr size_t kArenaBytes = size_t{1} << 39;
constexpr size_t kPage = 4096;
// Freed blocks of one size whose addresses are kept from use.
constexpr size_t kKept = 64;
// Never read or written: an access a little behind a block is in no other.
constexpr size_t kGapBytes = 256;

// Blocks from this size on share pages of NaN until they are written.
constexpr size_t kLargeBytes = 64 << 20;
// What these pages are shared of.
constexpr size_t kPatternBytes = 8 << 20;

size_t RoomFor(size_t bytes) {
  const size_t wanted = bytes + kGapBytes;
  const size_t unit = wanted < kPage ? Memory::kAlignment : kPage;
  return (wanted + unit - 1) / unit * unit;
}

uintptr_t Number(const void* address) { return reinterpret_cast<uintptr_t>(address); }

// A file of kPatternBytes of NaN of every width, in memory.
int OpenPattern() {
  const int file = memfd_create("nan", MFD_CLOEXEC);
  PCHECK(file >= 0);
  const std::vector<unsigned char> bytes(kPatternBytes, 0xff);
  PCHECK(write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  return file;
}

// Fills whole pages with NaN by mapping the pattern there over and over: a table of gigabytes of
// which a test touches a few rows takes the memory of these rows.
void MapPattern(void* block, size_t bytes) {
  static const int file = OpenPattern();
  for (size_t at = 0; at < bytes; at += kPatternBytes) {
    void* const part = static_cast<char*>(block) + at;
    PCHECK(mmap(part, std::min(kPatternBytes, bytes - at), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file, 0) == part);
  }
}

}  // namespace

Memory::Memory(int devices) : arenas_(static_cast<size_t>(devices)) {
  for (Arena& arena : arenas_) {
    arena.default_pool =
        std::make_shared<MemoryPool>(MemoryPool{static_cast<int>(&arena - arenas_.data()), {}});
    void* const memory = mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    PCHECK(memory != MAP_FAILED) << "address space for an emulated GPU";
    arena.begin = static_cast<char*>(memory);
  }
}

Memory::~Memory() {
  for (const Arena& arena : arenas_) munmap(arena.begin, kArenaBytes);
}

const std::shared_ptr<MemoryPool>& Memory::DefaultPool(int device) const {
  return arenas_[static_cast<size_t>(device)].default_pool;
}

void Memory::SetAccess(MemoryPool& pool, int peer, bool has_access) {
  std::unique_lock lock(mutex_);
  if (has_access) {
    pool.peers.insert(peer);
  } else {
    pool.peers.erase(peer);
    ++generation_;
  }
}

void* Memory::Reserve(const std::shared_ptr<MemoryPool>& pool, size_t bytes) {
  std::unique_lock lock(mutex_);
  Arena& arena = arenas_[static_cast<size_t>(pool->device)];
  if (bytes > static_cast<size_t>(kBytesOfDevice - arena.live_bytes)) return nullptr;
  const size_t room = RoomFor(bytes);
  std::deque<uintptr_t>& freed = arena.freed[room];
  uintptr_t begin;
  if (freed.size() > kKept) {
    begin = freed.front();
    freed.pop_front();
  } else {
    CHECK_LE(arena.used + room + kPage, kArenaBytes) << "an emulated GPU's addresses are used up";
    if (room % kPage == 0) arena.used = (arena.used + kPage - 1) / kPage * kPage;
    begin = Number(arena.begin) + arena.used;
    arena.used += room;
  }
  arena.blocks[begin] = {.bytes = bytes, .room = room, .state = State::kReserved, .pool = pool};
  arena.live_bytes += static_cast<int64_t>(bytes);
  return reinterpret_cast<void*>(begin);
}

void Memory::Begin(void* block) {
  size_t bytes = 0;
  {
    std::unique_lock lock(mutex_);
    Block& begun = arenas_[static_cast<size_t>(DeviceOf(block))].blocks.at(Number(block));
    begun.state = State::kLive;
    bytes = begun.bytes;
    if (bytes >= kLargeBytes) return MapPattern(block, begun.room);
  }
  std::memset(block, 0xff, bytes);
}

bool Memory::End(void* block) {
  std::unique_lock lock(mutex_);
  Arena& arena = arenas_[static_cast<size_t>(DeviceOf(block))];
  Block& ended = arena.blocks.at(Number(block));
  if (ended.state != State::kLive) return false;
  ended.state = State::kFreed;
  arena.live_bytes -= static_cast<int64_t>(ended.bytes);
  arena.freed[ended.room].push_back(Number(block));
  if (ended.room % kPage == 0) PCHECK(madvise(block, ended.room, MADV_DONTNEED) == 0);
  ++generation_;
  return true;
}

int64_t Memory::free_bytes(int device) const {
  std::shared_lock lock(mutex_);
  return kBytesOfDevice - arenas_[static_cast<size_t>(device)].live_bytes;
}

int64_t Memory::BytesOf(const void* block) const {
  const int device = DeviceOf(block);
  if (device < 0) return -1;
  std::shared_lock lock(mutex_);
  const auto [begin, found] = Find(device, Number(block));
  const bool is_block = found != nullptr && begin == Number(block) && found->state != State::kFreed;
  return is_block ? static_cast<int64_t>(found->bytes) : -1;
}

void* Memory::PageLock(size_t bytes) {
  void* const block = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
  CHECK(block != nullptr);
  std::memset(block, 0xff, bytes);
  std::unique_lock lock(mutex_);
  page_locked_[Number(block)] = bytes;
  return block;
}

bool Memory::Unlock(void* block) {
  {
    std::unique_lock lock(mutex_);
    if (page_locked_.erase(Number(block)) == 0) return false;
    ++generation_;
  }
  std::free(block);
  return true;
}

int Memory::DeviceOf(const void* address) const {
  for (size_t device = 0; device < arenas_.size(); ++device) {
    if (Number(address) - Number(arenas_[device].begin) < kArenaBytes) {
      return static_cast<int>(device);
    }
  }
  return -1;
}

bool Memory::IsPageLocked(const void* address, size_t bytes) const {
  std::shared_lock lock(mutex_);
  const auto next = page_locked_.upper_bound(Number(address));
  if (next == page_locked_.begin()) return false;
  const auto& [begin, size] = *std::prev(next);
  return Number(address) + bytes <= begin + size;
}

Memory::Located Memory::Find(int device, uintptr_t address) const {
  const auto& blocks = arenas_[static_cast<size_t>(device)].blocks;
  const auto next = blocks.upper_bound(address);
  if (next == blocks.begin()) return {0, nullptr};
  const auto& found = *std::prev(next);
  return {found.first, &found.second};
}

std::string Memory::Judge(int device, const void* address, size_t bytes) const {
  const int owner = DeviceOf(address);
  if (owner < 0) {
    return IsPageLocked(address, bytes) ? "" : "in memory of the host that is not page-locked";
  }
  std::shared_lock lock(mutex_);
  const auto [begin, block] = Find(owner, Number(address));
  if (block == nullptr) return "in memory that was never allocated";
  if (owner != device && !block->pool->peers.contains(device)) {
    return absl::StrCat("in memory of GPU ", owner, ", whose pool GPU ", device,
                        " has no access to (cudaMemPoolSetAccess)");
  }
  const uintptr_t end = begin + block->bytes;
  if (Number(address) + bytes > end) {
    return absl::StrCat("up to byte ", Number(address) + bytes - begin, " of a block of ",
                        block->bytes, " bytes");
  }
  switch (block->state) {
    case State::kLive:
      return "";
    case State::kReserved:
      return "in a block whose allocation its stream has not come to";
    case State::kFreed:
      return "in a block that was freed";
  }
  return "";
}

Memory::Range Memory::RangeAround(int device, const void* address) const {
  const uint64_t now = generation();
  std::shared_lock lock(mutex_);
  const int owner = DeviceOf(address);
  if (owner < 0) return {};
  const auto [begin, block] = Find(owner, Number(address));
  if (block == nullptr || block->state != State::kLive) return {};
  if (owner != device && !block->pool->peers.contains(device)) return {};
  return {.begin = begin, .end = begin + block->bytes, .generation = now};
}

}  // namespace lockstep::emulation
