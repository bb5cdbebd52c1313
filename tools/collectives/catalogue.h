// What there is to say about each operation.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/comm/operation.h"

namespace lockstep {

// Notation: n ranks, 0 to n-1; rank i holds x_i; X = [x_0, ..., x_n-1] is all of them one after the
// other; y is their reduction. B is the payload in bytes, α the time of a message whatever its
// size, β the time of a byte.
struct Collective {
  Operation operation;  // kSend stands for a send and the receive that meets it
  const char* name;     // on the command line
  const char* summary;  // one sentence
  const char* notation;
  const char* time;   // with the best known algorithm, as WireBytes (core/comm/signature.h)
  const char* sends;  // how many bytes which rank sends, by WireBytes
  const char* users;  // which strategy calls it for what
};

// All of them, from the simple to the composed.
absl::Span<const Collective> Collectives();

const Collective& CollectiveOf(Operation operation);

// By name; an unknown one is an error that suggests the nearest.
absl::StatusOr<Collective> FindCollective(const std::string& name);

}  // namespace lockstep
