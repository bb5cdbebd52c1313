// What a thread of an emulated GPU can ask for: its place, and what it does together with others
// of its warp or block. Called within kernels alone.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "vector_types.h"

namespace lockstep::emulation {

// Tells the name of the kernel, for messages.
void EnterKernel(const char* name);

uint3 ThreadIndex();
uint3 BlockIndex();
dim3 BlockExtents();
dim3 GridExtents();

// Waits for all threads of the block that have not ended; returns the or of their `bits`.
unsigned SyncThreads(unsigned bits);

// The following wait for the lanes of `mask`, which all make the same call.
void SyncWarp(unsigned mask);
unsigned Ballot(unsigned mask, bool predicate);
// Returns what lane `lane` passed as `bits`.
uint64_t ShuffleBits(unsigned mask, uint64_t bits, int lane);
// The calling thread's lane.
int Lane();

template <typename T>
T Shuffle(unsigned mask, T value, int lane) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move words of 4 or 8 bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = ShuffleBits(mask, bits, lane);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
template <typename T>
T ShuffleXor(unsigned mask, T value, int distance) {
  return Shuffle(mask, value, Lane() ^ distance);
}

// Memory of the block: a variable, which all threads find under the same `key`; what the launch
// asked for.
void* StaticSharedBytes(const void* key, size_t bytes, size_t alignment);
void* DynamicSharedBytes(size_t alignment);

template <typename T, typename Declaration>
T& StaticShared(Declaration) {
  static const char kKey = 0;  // one for each declaration, whose lambda has a type of its own
  return *static_cast<T*>(StaticSharedBytes(&kKey, sizeof(T), alignof(T)));
}
template <typename T, size_t kAlignment>
T* DynamicShared() {
  return static_cast<T*>(DynamicSharedBytes(kAlignment));
}

// Where an address of shared memory lies in it, and the way back.
size_t SharedOffset(const void* shared);
unsigned char* SharedAt(size_t offset);

unsigned long long AtomicAdd(unsigned long long* sum, unsigned long long value);

// An access to memory as kernels make them; ends the kernel with an error where it may not be.
enum class Access { kRead, kWrite };
void CheckAccess(Access access, const void* address, size_t bytes, size_t alignment);

// Registers what the calling thread has begun to copy to shared memory; `from` is null for zeros.
void BeginCopy(size_t shared_offset, const void* from, size_t bytes);
// Makes the calling thread's copies.
void FinishCopies();

// What lanes exchange in an instruction of the whole warp: f(operands of the 32 lanes), once.
using WarpFunction = void (*)(void* const (&operands)[32]);
void TogetherAsWarp(WarpFunction f, void* operands);

}  // namespace lockstep::emulation
