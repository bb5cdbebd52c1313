#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "core/comm/operation.h"
#include "core/comm/signature.h"
#include "core/tensor/dtype.h"

namespace lockstep {

// One member's memory in a collective; null where its chunk has none.
struct MemberBuffers {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
};

// What moves elements from member to member: where their memory is, decides how.
class Mover {
 public:
  virtual ~Mover() = default;

  virtual void Copy(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  // Copies to several places.
  virtual void CopyToAll(absl::Span<std::byte* const> to, const std::byte* from, int64_t bytes) {
    for (std::byte* place : to) Copy(place, from, bytes);
  }
  // Whether CopyToAll reads `from` only once, so that members do better to bring what they have to
  // all others than to take what others have.
  virtual bool reads_once() const { return false; }
  // As ReduceByTree (reduce.h), for memory that may not be the host's.
  virtual void Reduce(DType dtype, ReduceOp op, absl::Span<const std::byte* const> inputs,
                      absl::Span<std::byte* const> outputs, int64_t begin, int64_t end) = 0;
  virtual void Swap(std::byte* one, std::byte* other, int64_t bytes) = 0;
};

// Task `index` of the `count` tasks that do the work of one collective.
struct CollectiveTask {
  int index = 0;
  int count = 1;
};

// Runs one task of a collective: when all tasks have run, all outputs are filled. Tasks may run at
// the same time without meeting each other, also in place: together they read every input once and
// write every output once, straight from and to the members' memory.
void RunTask(const Signature& signature, absl::Span<const MemberBuffers> members,
             CollectiveTask task, Mover& mover);

// --- in host memory
// -------------------------------------------------------------------------------

// Bytes that member `rank` brings into the collective, and the most that any member does; none of
// what is in a device's memory.
int64_t InputBytes(const Signature& signature, int size, int rank);
int64_t LargestInputBytes(const Signature& signature, int size);

// Fills the output of member `rank` from the inputs of all, which nobody changes meanwhile, and
// touches no other output. Nothing of what is in a device's memory.
void TakeOutput(const Signature& signature, absl::Span<const MemberBuffers> members, int rank);

// Runs the task of member `rank`; there are as many tasks as members.
void RunTask(const Signature& signature, absl::Span<const MemberBuffers> members, int rank);

}  // namespace lockstep
