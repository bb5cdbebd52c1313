#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "core/comm/signature.h"

namespace lockstep {

// One member's memory in a collective; null where its part has none.
struct MemberBuffers {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
};

// Bytes that member `rank` brings into the collective, and the most that any member does.
int64_t InputBytes(const Signature& signature, int size, int rank);
int64_t LargestInputBytes(const Signature& signature, int size);

// Fills the output of member `rank` from the inputs of all, which nobody changes meanwhile, and
// touches no other output.
void TakeOutput(const Signature& signature, absl::Span<const MemberBuffers> members, int rank);

// Does the share of member `rank` in a collective. Once every member's share is done, all outputs
// are filled. Shares run at the same time without meeting each other, also in place: together they
// read every input once and write every output once, straight from and to the members' memory.
void MoveShare(const Signature& signature, absl::Span<const MemberBuffers> members, int rank);

}  // namespace lockstep
